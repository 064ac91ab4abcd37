#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_leftovers.py - nothing unfinished, private or oversized is left in the repository.

Every text file: no path of one machine, no mark of unfinished work or of a merge, no disabled code.
Sources: an SPDX line, a head that starts with the file's name, at most 800 lines (public headers
400), and functions of at most 100 lines. CMake files, Makefile and workflows open with a comment.
"""
import os
import re

import tree

# Spelled in two halves, so that this file passes its own check.
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE = re.compile(r"(?<![\w.$}/])/(home|root|work|Users)/\w")
CONFLICT = re.compile(r"^(<{7}|>{7}) .*", re.M)
DISABLED = re.compile(r"^[ \t]*#[ \t]*if[ \t]+0\b", re.M)

FILE_LINES, PUBLIC_LINES, FUNCTION_LINES = 800, 400, 100


def is_script(path, text):
    return text.startswith("#!") or path.endswith((".py", ".sh"))


def head_problems(path, text):
    name = os.path.basename(path)
    lines = text.split("\n")
    if path.endswith((".c", ".h")):
        if lines[0] != "/* SPDX-License-Identifier: Apache-2.0 */":
            yield f"{path}:1: the first line is not the SPDX line"
        if not re.match(rf"/\* {re.escape(name)} (\(internal\) )?- \S", "".join(lines[1:2])):
            yield f'{path}:2: the head does not start with "/* {name} - what it is"'
    elif is_script(path, text):
        head = lines[1:] if lines[0].startswith("#!") else lines
        if not head or head[0] != "# SPDX-License-Identifier: Apache-2.0":
            yield f"{path}: no SPDX line at the top"
        if not re.match(rf'(# |""")({re.escape(name)}) - \S', "".join(head[1:2])):
            yield f'{path}: the head does not start with "{name} - what it is"'
    elif path.endswith((".cmake", ".yml")) or name in ("CMakeLists.txt", "Makefile"):
        if not text.startswith("# "):
            yield f"{path}:1: the file does not open with a comment"


def size_problems(path, text):
    limit = PUBLIC_LINES if path.startswith("include/") else FILE_LINES
    lines = text.split("\n")
    if len(lines) - 1 > limit:
        yield f"{path}: {len(lines) - 1} lines, at most {limit}"
    if not path.endswith(".c"):
        return
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start + 1 > FUNCTION_LINES:
                yield f"{path}:{start}: a function of {number - start + 1} lines, at most {FUNCTION_LINES}"
            start = None


def text_problems(path, text):
    for pattern, why in ((MARKS, "a mark of unfinished work"), (MACHINE, "a path of one machine"),
                         (DISABLED, "disabled code"), (CONFLICT, "a mark of a merge")):
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(0).strip()}: {why}"


def main():
    root = tree.arguments(__doc__.split("\n")[0]).parse_args().root
    problems, count = [], 0
    for path in tree.files(root):
        with open(os.path.join(root, path), "rb") as file:
            if b"\0" in file.read(8192):
                continue
        text = tree.read(root, path)
        count += 1
        problems += text_problems(path, text)
        if path.startswith("tests/") and not path.endswith((".c", ".h", ".py", "CMakeLists.txt")):
            continue  # inputs and expected outputs
        problems += head_problems(path, text)
        if path.endswith((".c", ".h", ".py")) or is_script(path, text):
            problems += size_problems(path, text)
    tree.verdict("check_leftovers", problems, f"{count} files")


main()
