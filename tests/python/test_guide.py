# SPDX-License-Identifier: Apache-2.0
"""test_guide.py - the examples of docs/python.md run; those that import torch are left to its tests."""
import contextlib
import io
import os
import re
import unittest

GUIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python.md")


class Guide(unittest.TestCase):
    def test_examples_run(self):
        with open(GUIDE, encoding="utf-8") as file:
            examples = [e for e in re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL) if "torch" not in e]
        self.assertGreaterEqual(len(examples), 2)
        for example in examples:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example, "python.md", "exec"), {})
