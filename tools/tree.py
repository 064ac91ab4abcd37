# SPDX-License-Identifier: Apache-2.0
"""tree.py - what the checks share: the files of the repository, C without comments, a verdict."""
import argparse
import os
import re
import sys

SKIPPED = {".git", "build", "results", "corpus", "__pycache__", ".venv"}


def arguments(description):
    """A parser with --root, the folder that is checked: by default the one this script lies in."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    return parser


def files(root, folders=(".",), endings=("",)):
    """Paths relative to root, sorted, of the files below the folders with one of the endings."""
    found = []
    for folder in folders:
        for here, subfolders, names in os.walk(os.path.join(root, folder)):
            subfolders[:] = [s for s in subfolders if s not in SKIPPED]
            found += [os.path.relpath(os.path.join(here, n), root) for n in names if n not in SKIPPED]
    return sorted(set(f for f in found if f.endswith(tuple(endings))))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def code(text, keep_strings=False):
    """C text with comments (and strings) blanked; the line numbers stay."""

    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token if keep_strings else '""'

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def verdict(name, problems, what):
    """Prints the problems and ends the program: 1 if there are any."""
    for problem in problems:
        print(problem)
    print(f"{name}: {len(problems)} problems" if problems else f"{name}: {what}, all well")
    sys.exit(1 if problems else 0)
