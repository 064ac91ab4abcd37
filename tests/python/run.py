#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - runs one file of tests of the Python package, which PYTHONPATH leads to.

    PYTHONPATH=build/release/python tests/python/run.py test_selection.py [NAME...]

Skips (77) where Python has no NumPy or cffi. A file may skip itself whole by a `needs` of module names.
"""
import importlib
import importlib.util
import os
import sys
import unittest


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1])
    for name in ("cffi", "numpy"):
        if importlib.util.find_spec(name) is None:
            print(f"skipped: {sys.executable} has no {name} (Debian: python3-{name})")
            return 77
    sys.path.insert(0, os.path.dirname(path))
    module = importlib.import_module(os.path.splitext(os.path.basename(path))[0])
    program = unittest.main(module=module, argv=[path, *sys.argv[2:]], exit=False, verbosity=2)
    return 0 if program.result.wasSuccessful() and program.result.testsRun else 1


sys.exit(main())
