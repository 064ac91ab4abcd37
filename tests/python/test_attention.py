# SPDX-License-Identifier: Apache-2.0
"""test_attention.py - attention forward and backward against double precision; any strides; several Python threads; sentences."""
import threading
import unittest

import numpy as np
import tessera
from reference import dense_attention, dense_backward, draw, random_selection

TOLERANCE = 2e-5  # sums of at most 150 products of fp32, errors of 150 * 2^-24 times values below 2


class Attention(unittest.TestCase):
    def check(self, q, k, v, selection=None, mask=None, scale=None):
        o, lse = tessera.attention(q, k, v, selection, scale, return_lse=True)
        want_o, want_lse, _ = dense_attention(q, k, v, mask, scale)
        np.testing.assert_allclose(o, want_o, atol=TOLERANCE)
        np.testing.assert_allclose(lse, want_lse, atol=TOLERANCE)
        np.testing.assert_array_equal(tessera.attention(q, k, v, selection, scale), o)
        do, dlse = draw(9, *q.shape), draw(10, *lse.shape)
        dlse[~np.isfinite(lse)] = 0
        for d in (None, dlse):
            have = tessera.attention_backward(do, q, k, v, o, lse, selection, scale, d)
            for a, b in zip(have, dense_backward(do, q, k, v, mask, scale, d)):
                np.testing.assert_allclose(a, b, atol=5 * TOLERANCE)

    def test_dense_attention_agrees_with_double_precision(self):
        self.check(draw(1, 2, 3, 70, 16), draw(2, 2, 3, 90, 16), draw(3, 2, 3, 90, 16))
        self.check(draw(1, 1, 1, 70, 64), draw(2, 1, 1, 70, 64), draw(3, 1, 1, 70, 64), scale=0.3)

    def test_sparse_attention_agrees_with_double_precision(self):
        for bounds in (False, True):
            selection, _, mask = random_selection(4, bounds=bounds)
            self.check(draw(1, 2, 3, 150, 32), draw(2, 2, 3, 130, 32), draw(3, 2, 3, 130, 32), selection, mask)

    def test_views_of_other_layouts_are_taken_as_they_are(self):
        q, k, v = (draw(seed, 2, 80, 3, 16).transpose(0, 2, 1, 3) for seed in (1, 2, 3))
        self.check(q, k, v)
        self.check(draw(1, 2, 3, 80, 16)[:, ::-1], draw(2, 2, 6, 80, 16)[:, ::2], draw(3, 2, 3, 160, 16)[:, :, ::2])
        wide = draw(4, 2, 3, 80, 32)
        self.check(wide[..., ::2], k, v)  # elements of a row are no neighbours: copied

    def test_compensation_of_full_lists_changes_nothing(self):
        q, k, v = (draw(seed, 1, 2, 64, 16) for seed in (1, 2, 3))
        full = tessera.Selection.from_mask(np.ones((2, 4, 4), bool), 16, 16, 64)
        np.testing.assert_array_equal(tessera.attention(q, k, v, full, compensate=True), tessera.attention(q, k, v))
        none = tessera.Selection.from_mask(np.zeros((2, 4, 4), bool), 16, 16, 64)
        np.testing.assert_allclose(tessera.attention(q, k, v, none, compensate=True)[0, 0, 5], v[0, 0].mean(0), atol=1e-6)

    def test_virtual_keys_of_clusters_stand_for_equal_keys_exactly(self):
        # Keys and values of 4 kinds: 4 clusters lose nothing, and their mean alone does.
        pick = np.random.default_rng(1).integers(0, 4, 128)
        k, v = (np.ascontiguousarray(np.broadcast_to(3 * draw(seed, 4, 16)[pick], (1, 2, 128, 16))) for seed in (2, 3))
        q = draw(1, 1, 2, 128, 16)
        selection = tessera.random(heads=2, seq_q=128, q_block=16, k_block=16, density=0.25)
        (o, lse), (want, want_lse) = (tessera.attention(q, k, v, *more, return_lse=True) for more in ((selection,), ()))
        self.assertGreater(np.abs(o - want).max(), 0.1)
        self.assertGreater(np.abs(tessera.attention(q, k, v, selection, compensate=1) - want).max(), 0.1)
        o, lse = tessera.attention(q, k, v, selection, return_lse=True, compensate=4)
        np.testing.assert_allclose(o, want, atol=10 * TOLERANCE)  # values up to 10 here
        np.testing.assert_allclose(lse, want_lse, atol=10 * TOLERANCE)
        dq = tessera.attention_backward(v, q, k, v, o, lse, selection, compensate=4)[0]
        np.testing.assert_allclose(dq, dense_backward(v, q, k, v)[0], atol=1e-3)  # values up to 100
        np.testing.assert_array_equal(tessera.attention(q, k, v, selection, compensate=True),
                                      tessera.attention(q, k, v, selection, compensate=np.int64(1)))

    def test_python_threads_share_a_selection(self):
        selection, _, mask = random_selection(5)
        q, k, v = draw(1, 2, 3, 150, 32), draw(2, 2, 3, 130, 32), draw(3, 2, 3, 130, 32)
        want, wrong = tessera.attention(q, k, v, selection), []

        def run():
            for _ in range(20):
                if not np.array_equal(tessera.attention(q, k, v, selection), want):
                    wrong.append(1)
        threads = [threading.Thread(target=run) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_the_bits_do_not_depend_on_threads(self):
        q, k, v = (draw(seed, 2, 3, 300, 32) for seed in (1, 2, 3))
        results = []
        for threads in (1, 2, 3):
            tessera.set_threads(threads)
            self.assertEqual(tessera.get_threads(), threads)
            results.append(tessera.attention(q, k, v))
        tessera.set_threads(0)
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])

    def test_more_shapes_than_are_kept(self):
        for tokens in range(1, 40):
            q = draw(tokens, 1, 1, tokens, 8)
            np.testing.assert_allclose(tessera.attention(q, q, q), dense_attention(q, q, q)[0], atol=TOLERANCE)

    def test_wrong_arguments_are_refused_by_name(self):
        q, k = draw(1, 2, 3, 64, 16), draw(2, 2, 3, 32, 16)
        selection, _, _ = random_selection(6)
        calls = {
            "q is of float64, must be float32": lambda: tessera.attention(q.astype(np.float64), k, k),
            r"q has the shape \(3, 64, 16\), must be \(batch": lambda: tessera.attention(q[0], k, k),
            "q is a list, must be a NumPy array": lambda: tessera.attention(q.tolist(), k, k),
            "k has the shape": lambda: tessera.attention(q, k[:1], k),
            "v has the shape": lambda: tessera.attention(q, k, k[:, :, :5]),
            "head_dim is 12, must be a multiple of 8": lambda: tessera.attention(q[..., :12], k[..., :12], k[..., :12]),
            "the selection's tokens_q is 150, must be 64": lambda: tessera.attention(q, q, q, selection),
            "selection is a list, must be a Selection": lambda: tessera.attention(q, k, k, [1]),
            "scale is -1, must be positive": lambda: tessera.attention(q, k, k, scale=-1),
            "scale is 'x', must be a number": lambda: tessera.attention(q, k, k, scale="x"),
            "compensate is 65, must be 0..64": lambda: tessera.attention(q, k, k, compensate=65),
            "compensate is 0.5, must be an integer": lambda: tessera.attention(q, k, k, compensate=0.5),
            r"compensate is \[1\], must be an integer": lambda: tessera.attention(q, k, k, compensate=[1]),
            "lse has the shape": lambda: tessera.attention_backward(q, q, k, k, q, q),
            "lse is of float64": lambda: tessera.attention_backward(q, q, k, k, q, np.zeros((2, 3, 64))),
            "do has the shape": lambda: tessera.attention_backward(q[:1], q, k, k, q, q[..., 0]),
        }
        for sentence, call in calls.items():
            with self.subTest(sentence), self.assertRaisesRegex(ValueError, sentence):
                call()
