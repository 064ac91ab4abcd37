# SPDX-License-Identifier: Apache-2.0
"""test_formats.py - selections as arrays of other kernels, and back; selectors."""
import json
import os
import tempfile
import unittest

import numpy as np
import tessera
from reference import draw, random_selection


class Formats(unittest.TestCase):
    def test_each_form_round_trips(self):
        for bounds in (False, True):
            selection, mask, _ = random_selection(1, bounds=bounds)
            blocks = selection.bounds if bounds else selection.block
            shape = dict(seq_q=150, seq_k=130, q_block=blocks[0], k_block=blocks[1])
            for transposed in (False, True):
                np.testing.assert_array_equal(selection.export("mask", transposed=transposed),
                                              mask.swapaxes(2, 3) if transposed else mask)
                for compact in (False, True):
                    counts, indices = selection.export("lists", transposed=transposed, compact=compact)
                    self.assertEqual((counts.dtype, indices.dtype), (np.int32, np.int32))
                    back = tessera.Selection.from_counts(counts, indices, transposed=transposed, **shape)
                    np.testing.assert_array_equal(back.to_mask(), mask)
                indptr, indices = selection.export("csr", transposed=transposed)
                back = tessera.Selection.from_csr(indptr, indices, batch=2, heads=3, transposed=transposed, **shape)
                np.testing.assert_array_equal(back.to_mask(), mask)

    def test_sta_windows_are_those_of_the_selector(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sta.json")
            windows = [[1, 3, 3], [3, 1, 5]]
            with open(path, "w", encoding="utf-8") as file:
                json.dump({f"4_7_{h}": w for h, w in enumerate(windows)}, file)
            for strategy in (windows, path):
                made = tessera.Selection.from_sta(strategy, (4, 9, 10), (2, 3, 2), step=4, layer=7)
                for head, window in enumerate(windows):
                    want = tessera.window((4, 9, 10), (2, 3, 2), window)
                    np.testing.assert_array_equal(made.to_mask()[:, head], want.to_mask()[:, 0])
                    np.testing.assert_array_equal(made.bounds[0], want.bounds[0])
            with self.assertRaisesRegex(ValueError, "strategy has no windows of all heads for step 0"):
                tessera.Selection.from_sta(path, (4, 9, 10), (2, 3, 2))

    def test_sparge_masks(self):
        mask = np.random.default_rng(1).integers(0, 2, (1, 2, 2, 4)).astype(np.int8)
        np.testing.assert_array_equal(tessera.Selection.from_sparge(mask, 250).to_mask(), mask != 0)

    def test_selectors_give_selections(self):
        q, k = draw(1, 1, 2, 128, 16), draw(2, 1, 2, 128, 16)
        best = tessera.oracle(q, k, 32, 16, density=0.25)
        self.assertAlmostEqual(best.density, 0.25)
        self.assertAlmostEqual(best.measure(q, k).recall, 1.0, places=5)
        mass, recall = tessera.pooled(q, k, 32, 16, keys=[1, 8]).measure(q, k)
        self.assertTrue(0 < mass < 1 and 0 < recall <= 1)
        self.assertGreaterEqual(tessera.oracle(q, k, 32, 16, mass=0.9).measure(q, k).mass, 0.9)
        self.assertAlmostEqual(tessera.predictor(q, k, 32, keys=8).density, 8 / 128)
        drawn = [tessera.random(heads=2, seq_q=128, q_block=32, k_block=16, density=0.5, seed=s).to_mask() for s in (1, 1, 2)]
        self.assertTrue((drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any())
        with self.assertRaisesRegex(ValueError, "density and keys given, must be exactly one"):
            tessera.oracle(q, k, 32, 16, density=0.5, keys=3)

    def test_wrong_arrays_are_refused_by_name(self):
        selection, _, _ = random_selection(2)
        shape = dict(seq_q=150, seq_k=130, q_block=32, k_block=16)
        counts, indices = selection.export("lists")
        for sentence, call in {
                "form is 'flex', must be": lambda: selection.export("flex"),
                "compact is of lists alone": lambda: selection.export("csr", compact=True),
                "counts has": lambda: tessera.Selection.from_counts(counts + 90, indices, **shape),
                "indices has": lambda: tessera.Selection.from_counts(counts, indices + 90, **shape),
                "indptr has": lambda: tessera.Selection.from_csr([0, 1], [0], batch=1, heads=1, **shape)}.items():
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                call()
