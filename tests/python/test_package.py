# SPDX-License-Identifier: Apache-2.0
"""test_package.py - import, exit and fork of a process, the doctor, examples of the docstrings."""
import doctest
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import tessera

BAR = 20 if "libasan" in os.environ.get("LD_PRELOAD", "") else 1  # times the bar: the sanitizer is slow


class Package(unittest.TestCase):
    def test_examples_of_docstrings(self):
        # Classes are of the module tessera, functions of the files that have them.
        for name in ("tessera", "tessera._selectors", "tessera._attention", "tessera._plan", "tessera._doctor"):
            result = doctest.testmod(importlib.import_module(name))
            self.assertEqual(result.failed, 0, name)
            self.assertGreater(result.attempted, 0, name)

    def test_the_doctor_finds_two_runtimes(self):
        self.assertIsInstance(tessera.doctor(), list)
        line = "7f00-7f01 r-xp 00000000 08:01 123 {}\n"
        maps = [line.format(p) for p in ("/a/libgomp.so.1", "/a/libgomp.so.1", "/b/libiomp5.so", "/c/libc.so.6")]
        self.assertEqual(tessera._doctor.openmp_runtimes(maps), ["/a/libgomp.so.1", "/b/libiomp5.so"])

    def run_python(self, text, folder=None):
        environment = os.environ if folder is None else {**os.environ, "PYTHONPATH": folder}
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False, env=environment)

    def import_of_a_copy(self, change, module="tessera"):
        """What Python says on the import of a copy of the package with a change."""
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "tessera")
            shutil.copytree(os.path.dirname(tessera.__file__), copy, ignore=shutil.ignore_patterns("__pycache__"))
            change(copy)
            done = self.run_python(f"import {module}", folder)
        self.assertEqual(done.returncode, 1)
        return done.stderr.splitlines()[-1]

    def test_a_missing_openmp_runtime_is_named(self):
        def change(copy):
            path = os.path.join(copy, "libtessera.so")
            with open(path, "rb") as file:
                library = file.read()
            if b"\0libgomp.so.1\0" not in library:
                self.skipTest("the library was built with another OpenMP runtime than gcc's")
            with open(path, "wb") as file:
                file.write(library.replace(b"\0libgomp.so.1\0", b"\0libgomp.so.0\0"))
        self.assertRegex(self.import_of_a_copy(change), "ImportError: tessera: libgomp.so.1, the OpenMP runtime, is missing; it is "
                                                        "in the package libgomp1 of Debian and Ubuntu")

    def test_a_missing_library_is_named(self):
        self.assertRegex(self.import_of_a_copy(lambda copy: os.remove(os.path.join(copy, "libtessera.so"))),
                         "libtessera.so is not there: build the target tessera_python")
        self.assertRegex(self.import_of_a_copy(lambda copy: os.remove(os.path.join(copy, "_decl.py"))), "has no _decl.py")

    def test_another_project_of_that_name_is_reported(self):
        def change(copy):
            with open(os.path.join(copy, "__init__.py"), "w", encoding="utf-8") as file:
                file.write("VERSION = '0.10.0'\n")
        for module in ("tessera.torch", "tessera._plan"):
            self.assertRegex(self.import_of_a_copy(change, module), "ImportError: tessera: the module found is .*__init__.py, not that "
                                                                    "of tessera-dit: PyPI's package `tessera` is another project")

    def test_import_takes_little_beyond_numpy(self):
        done = self.run_python("import numpy, time\nbegan = time.process_time()\nimport tessera\nprint(time.process_time() - began)")
        self.assertLess(float(done.stdout), BAR * 0.05)

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
    began = time.process_time()  # other processes do not count; one that hangs meets the timeout
    same = work() == want
    os.write(write, f"{same} {time.process_time() - began}".encode())
    os._exit(0)
same, seconds = os.read(read, 100).decode().split()
assert same == "True" and float(seconds) < BAR, (same, seconds)
'''.replace("BAR", str(BAR)))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_library_of_other_headers_is_refused(self):
        done = self.run_python("import sys, types, tessera._decl as d\n"
                               "for n in [n for n in sys.modules if n.startswith('tessera') and n != 'tessera._decl']: del sys.modules[n]\n"
                               "d.abi = '0'\nimport tessera")
        self.assertIn("was built with other headers than this package", done.stderr)
