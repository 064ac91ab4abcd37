#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_api.py - the stable tier of the API stays small, and the examples show it.

Stable are the functions of include/tessera/*.h: at most 130. Those of include/tessera/advanced/ may
change in any version, and each of these headers says so. Examples include stable headers only, and
show every kind of object that a stable function makes (tess_X_create, _open, _load, ...).
"""
import os
import re

import tree

STABLE_MAX = 130
PROMISE = "Advanced: functions and structs may change in any version."


def functions(root, path):
    text = re.sub(r"^[ \t]*#.*?(?<!\\)$", "", tree.code(tree.read(root, path)), flags=re.M | re.S)
    return re.findall(r"\bTESS_API\b[^;{]*?\b(\w+)\s*\(", text)


def check_examples(root, stable):
    used = set()
    for path in tree.files(root, ["examples"], [".c"]):
        text = tree.read(root, path)
        used.update(re.findall(r"\btess_\w+", tree.code(text)))
        for header in re.findall(r"#include <tessera/(advanced/\w+\.h)>", text):
            yield f"{path}: {header}, an example includes stable headers only"
    objects = {}
    for name in stable:
        match = re.match(r"tess_(\w+?)_(create|open|load|threads|from_\w+)$", name)
        if match:
            objects.setdefault(match.group(1), []).append(name)
    for makers in objects.values():
        if not used.intersection(makers):
            yield f"examples: none uses {' or '.join(makers)}"


def main():
    root = tree.arguments(__doc__.split("\n")[0]).parse_args().root
    problems, stable = [], []
    for path in tree.files(root, ["include"], [".h"]):
        if "/advanced/" not in path:
            stable += functions(root, path)
        elif PROMISE not in tree.read(root, path):
            problems.append(f'{path}: must say "{PROMISE}"')
    if len(stable) > STABLE_MAX:
        problems.append(f"include/tessera: {len(stable)} stable functions, at most {STABLE_MAX}")
    if os.path.isdir(os.path.join(root, "examples")):
        problems += check_examples(root, stable)
    tree.verdict("check_api", problems, f"{len(stable)} stable functions")


main()
