# SPDX-License-Identifier: Apache-2.0
"""test_formats.py - selections as arrays of other kernels, and back; selectors; the doctor; examples of the docstrings."""
import doctest
import importlib
import json
import os
import subprocess
import sys
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


class Package(unittest.TestCase):
    def test_examples_of_docstrings(self):
        for name in ("_selection", "_attention", "_plan", "_doctor"):
            result = doctest.testmod(importlib.import_module("tessera." + name))
            self.assertEqual(result.failed, 0, name)
            self.assertGreater(result.attempted, 0, name)

    def test_the_doctor_finds_two_runtimes(self):
        self.assertIsInstance(tessera.doctor(), list)
        line = "7f00-7f01 r-xp 00000000 08:01 123 {}\n"
        maps = [line.format(p) for p in ("/a/libgomp.so.1", "/a/libgomp.so.1", "/b/libiomp5.so", "/c/libc.so.6")]
        self.assertEqual(tessera._doctor.openmp_runtimes(maps), ["/a/libgomp.so.1", "/b/libiomp5.so"])

    def run_python(self, text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)

    def test_exit_with_live_objects(self):
        done = self.run_python("import numpy as np, tessera\nq = np.ones((1, 2, 512, 16), np.float32)\n"
                               "s = tessera.random(heads=2, seq_q=512, q_block=64, k_block=64, density=.5)\n"
                               "p = tessera.plan(s, 2); x = p.exchange(0, 0, [0, 9, 512]); o = tessera.attention(q, q, q, s)\n"
                               "class A: pass\na = A(); a.a = a; a.s = s; a.x = x")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_forked_child_has_the_same_bits_within_a_second(self):
        done = self.run_python('''
import os, time, numpy as np, tessera
tessera.set_threads(2)
rng = np.random.default_rng(1)
mask = rng.random((16, 512, 512)) < .3
bounds = np.arange(513) * 8
s = tessera.Selection.from_mask(mask, 8, bounds, 4096)
q = rng.standard_normal((1, 4, 512, 32)).astype(np.float32)
def work():
    s._lists = None
    t = tessera.Selection.from_mask(mask, 8, bounds, 4096)
    o, lse = tessera.attention(q, q, q, return_lse=True)
    g = tessera.attention_backward(q, q, q, q, o, lse)
    return hash((s.pairs, t.density, s.coarsen(64, 64).lists()[1].tobytes(), o.tobytes(), g[0].tobytes(), g[1].tobytes()))
want = work()
read, write = os.pipe()
if os.fork() == 0:
    began = time.time()
    same = work() == want
    os.write(write, f"{same} {time.time() - began}".encode())
    os._exit(0)
same, seconds = os.read(read, 100).decode().split()
assert same == "True" and float(seconds) < 10, (same, seconds)
print(seconds)
''')
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_library_of_other_headers_is_refused(self):
        done = self.run_python("import sys, types, tessera._decl as d\n"
                               "for n in [n for n in sys.modules if n.startswith('tessera') and n != 'tessera._decl']: del sys.modules[n]\n"
                               "d.abi = '0'\nimport tessera")
        self.assertIn("was built with other headers than this package", done.stderr)
