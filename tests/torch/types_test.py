#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""types_test.py - mypy finds nothing in the Python package, beside the types of NumPy, torch and diffusers.

    python tests/torch/types_test.py

Skips (77) where Python has no mypy.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")

if importlib.util.find_spec("mypy") is None:
    print(f"skipped: {sys.executable} has no mypy (pip install mypy)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as cache:
    sys.exit(subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", cache, "-p", "tessera"], check=False,
                            cwd=SOURCES, env={**os.environ, "PYTHONPATH": ""}).returncode)
