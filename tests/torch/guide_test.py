#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""guide_test.py - the examples of docs/python.md and docs/pytorch.md that import torch run; those of several ranks on 2 processes.

    PYTHONPATH=build/release/python python tests/torch/guide_test.py --tessera PROGRAM

The commands of pytorch.md run, too, with a script for their train.py.
"""
import argparse
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile

import tessera.torch
from processes import run
from trace_script_test import SCRIPT

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def examples(guide):
    with open(os.path.join(DOCS, guide), encoding="utf-8") as file:
        return [e for e in re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL) if "torch" in e]


def commands(guide):
    with open(os.path.join(DOCS, guide), encoding="utf-8") as file:
        return [shlex.split(line[2:]) for line in file if line.startswith("$ ")]


def play(tessera):
    """The examples of pytorch.md in their order: the step, then what is made of its record, then a script."""
    for example in examples("pytorch.md"):
        exec(compile(example, "pytorch.md", "exec"), {})
    with open("train.py", "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    found = commands("pytorch.md")
    for program, *words in found:
        done = subprocess.run([{"tessera": tessera, "python": sys.executable}[program], *words], capture_output=True, text=True)
        assert done.returncode == 0, f"{program} {' '.join(words)}: {done.stderr}"
    assert len(found) >= 5 and os.path.getsize("step.json.gz") > 0, found
    print(f"{len(found)} commands of pytorch.md")


def run_rank(rank, ranks, example):
    names = {}
    exec(compile(example, "python.md", "exec"), names)
    names["attention_of_a_rank"](rank, ranks)
    return "an example of python.md"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    given = parser.parse_args()
    found = examples("python.md")
    assert len(found) >= 3, f"{len(found)} examples with torch in python.md"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        play(given.tessera)
    for example in found:
        if "attention_of_a_rank" in example:
            print(run(2, run_rank, example))
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(example, "python.md", "exec"), {})
            print(f"an example of python.md: {out.getvalue().strip()}")
    for name in ("_balance", "_density", "_flex", "_handle", "_operator"):
        result = doctest.testmod(sys.modules[f"tessera.torch.{name}"])
        assert result.attempted > 0 and result.failed == 0, f"tessera.torch.{name}: {result}"
    print("all passed")


if __name__ == "__main__":
    main()
