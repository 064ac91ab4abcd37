# SPDX-License-Identifier: Apache-2.0
"""test_selection.py - selections from masks and lists, and back."""
import unittest

import numpy as np
import tessera
from reference import draw, random_bounds, random_selection


class Selections(unittest.TestCase):
    def test_a_mask_round_trips(self):
        for bounds in (False, True):
            selection, mask, tokens = random_selection(1, bounds=bounds)
            np.testing.assert_array_equal(selection.to_mask(), mask)
            np.testing.assert_array_equal(selection.to_mask(tokens=True), tokens)
            self.assertEqual(selection.shape, mask.shape)
            self.assertAlmostEqual(selection.density, tokens.mean(), places=12)
            self.assertEqual(selection.pairs, tokens.sum())
            self.assertEqual(selection.tokens, (150, 130))
            self.assertEqual(selection.block, (None, None) if bounds else (32, 16))

    def test_a_mask_without_batch_or_of_integers(self):
        mask = np.random.default_rng(2).integers(0, 3, (3, 4, 4))
        selection = tessera.Selection.from_mask(mask, 16, 16, 64)
        np.testing.assert_array_equal(selection.to_mask()[0], mask != 0)
        np.testing.assert_array_equal(selection.bounds[0], [0, 16, 32, 48, 64])

    def test_lists_round_trip(self):
        selection, mask, _ = random_selection(3)
        offsets, indices = selection.lists()
        again = tessera.Selection.from_lists(offsets, indices, batch=2, heads=3, seq_q=150, seq_k=130, q_block=32, k_block=16)
        np.testing.assert_array_equal(again.to_mask(), mask)
        again = tessera.Selection.from_lists(offsets.tolist(), indices.astype(np.int64), batch=2, heads=3, seq_q=150,
                                             seq_k=130, q_block=32, k_block=selection.bounds[1])
        np.testing.assert_array_equal(again.to_mask(), mask)

    def test_coarse_blocks_hold_every_pair(self):
        selection, _, tokens = random_selection(4)
        rng = np.random.default_rng(4)
        for q_block, k_block in ((64, 64), (random_bounds(rng, 150, 5), random_bounds(rng, 130, 6))):
            coarse = selection.coarsen(q_block, k_block)
            (bounds_q, bounds_k), mask = coarse.bounds, coarse.to_mask()
            for g in range(mask.shape[2]):
                for u in range(mask.shape[3]):
                    part = tokens[:, :, bounds_q[g]:bounds_q[g + 1], bounds_k[u]:bounds_k[u + 1]]
                    np.testing.assert_array_equal(mask[:, :, g, u], part.any(axis=(2, 3)))

    def test_roles_add_what_they_ask_for_and_no_more(self):
        pinned, dense = [(0, 5), (7, 1), (60, 30)], [(3, 1), (64, 9)]
        for bounds in (False, True):
            selection, mask, _ = random_selection(5, bounds=bounds)
            made = selection.with_roles(pinned_k=pinned, dense_q=dense)
            has = [np.array([any(first < end and first + n > begin for first, n in ranges) for begin, end in zip(b, b[1:])])
                   for ranges, b in zip((dense, pinned), selection.bounds)]
            self.assertFalse(has[0].all() or has[1].all())
            np.testing.assert_array_equal(made.to_mask(), mask | has[0][:, None] | has[1])
            np.testing.assert_array_equal(selection.to_mask(), mask)
            self.assertEqual(made.block, selection.block)
            np.testing.assert_array_equal(selection.with_roles().to_mask(), mask)

    def test_recall_is_measured_by_role(self):
        q, k = draw(6, 1, 2, 96, 16), draw(7, 1, 2, 96, 16)
        made = tessera.random(heads=2, seq_q=96, q_block=16, k_block=1, keys=8).with_roles(dense_q=[(0, 20)])
        text, video = (made.measure(q, k, queries=[r]) for r in ((0, 32), (32, 64)))
        self.assertAlmostEqual(text.recall, 1.0, places=6)
        self.assertLess(video.recall, 0.7)
        whole = made.measure(q, k)
        self.assertAlmostEqual(whole.recall, (32 * text.recall + 64 * video.recall) / 96, places=6)
        self.assertAlmostEqual(whole.mass, (32 * text.mass + 64 * video.mass) / 96, places=5)
        both = made.measure(q, k, queries=[(0, 1), (95, 1)])
        last = made.measure(q, k, queries=[(80, 16)])
        self.assertAlmostEqual(both.recall, (1.0 + last.recall) / 2, places=6)

    def test_wrong_arguments_are_refused_by_name(self):
        mask, make = np.ones((2, 4, 4), bool), tessera.Selection.from_mask
        lists = dict(batch=1, heads=1, seq_q=4, seq_k=4, q_block=2, k_block=2)
        roles, q = tessera.Selection.from_mask(mask, 16, 16, 64), draw(8, 1, 2, 64, 8)
        calls = {
            "mask has 4 query blocks, must have 5 for 65 tokens": lambda: make(mask, 16, 16, 65),
            "mask has 4 key blocks, must have 2 for 32 tokens": lambda: make(mask, 16, 16, 64, 32),
            r"mask has the shape \(4, 4\)": lambda: make(mask[0], 16, 16, 64),
            "mask is of float64, must be boolean": lambda: make(mask * 1.0, 16, 16, 64),
            "q_block is 0, must be 1": lambda: make(mask, 0, 16, 64),
            "k_block is 1.5, must be an integer": lambda: make(mask, 16, 1.5, 64),
            "q_block are bounds from 0 to 60, must ascend from 0 to 64": lambda: make(mask, [0, 1, 2, 3, 60], 16, 64),
            "k_block are bounds from 0 to 64, must ascend": lambda: make(mask, 16, [0, 2, 2, 3, 64], 64),
            "seq_q is -1": lambda: make(mask, 16, 16, -1),
            "offsets has 2 elements, must have 3": lambda: tessera.Selection.from_lists([0, 1], [0], **lists),
            "offsets ends with 2, must end with": lambda: tessera.Selection.from_lists([0, 1, 2], [0], **lists),
            "indices is of float64, must be of integers": lambda: tessera.Selection.from_lists([0, 1, 1], [0.5], **lists),
            "indices has values outside": lambda: tessera.Selection.from_lists([0, 1, 1], [2**40], **lists),
            "is 2 in list 0, must be below 2": lambda: tessera.Selection.from_lists([0, 1, 1], [2], **lists),
            r"pinned_k\[1\] is 2 rows from 3 on, must be 1 or more of 4": lambda: roles.with_roles(pinned_k=[(0, 4), (3, 2)]),
            r"dense_q\[0\] is 2 rows from 63 on": lambda: roles.with_roles(dense_q=[(63, 2)]),
            r"dense_q\[0\]\[1\] is 0, must be 1": lambda: roles.with_roles(dense_q=[(63, 0)]),
            r"pinned_k is \(0, 4\), must be pairs": lambda: roles.with_roles(pinned_k=(0, 4)),
            r"queries\[0\] is 2 rows from 63 on, must be of 0..63": lambda: roles.measure(q, q, queries=[(63, 2)]),
            "q has 63 tokens, must have 64": lambda: roles.measure(q[:, :, 1:].copy(), q, queries=[(0, 2)]),
            "is 0 in list 0, must be above 1": lambda: tessera.Selection.from_lists([0, 2, 2], [1, 0], **lists),
        }
        for sentence, call in calls.items():
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                call()
