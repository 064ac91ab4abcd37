#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_symbols.py - the symbols a shared library exports are exactly the declared ones.

    check_symbols.py --library tessera=build/release/lib/libtessera.so ...

Declared are the functions marked TESS_API in the library's public headers and those marked
TESS_SIBLING in the internal headers of its rooms.
"""
import re
import subprocess

import tree

# The rooms of the libraries besides libtessera. A public header says at its head what to link with.
ROOMS = {"tessera_train": {"media", "model", "data", "optim", "dsv", "train"}, "tessera_mpi": set()}


def library_of(root, path):
    match = re.search(r"Link with lib(\w+)", tree.read(root, path))
    return match.group(1) if match else "tessera"


def marked(root, path, mark):
    text = re.sub(r"^[ \t]*#.*?(?<!\\)$", "", tree.code(tree.read(root, path)), flags=re.M | re.S)
    return re.findall(rf"\b{mark}\b[^;{{]*?\b(\w+)\s*\(", text)


def declared(root, library):
    names = set()
    for path in tree.files(root, ["include"], [".h"]):
        if library_of(root, path) == library:
            names.update(marked(root, path, "TESS_API"))
    taken = set().union(*ROOMS.values())
    for path in tree.files(root, ["src"], [".h"]):
        room = path.split("/")[1]
        if room in ROOMS[library] if library in ROOMS else room not in taken:
            names.update(marked(root, path, "TESS_SIBLING"))
    return names


def exported(nm, path):
    output = subprocess.run([nm, "-D", "--defined-only", path], check=True, capture_output=True, text=True)
    names = {line.split()[-1].split("@")[0] for line in output.stdout.splitlines()}
    return names - {"_init", "_fini", "_edata", "_end", "__bss_start"}


def main():
    parser = tree.arguments(__doc__.split("\n")[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--library", action="append", required=True, metavar="NAME=PATH")
    options = parser.parse_args()
    problems, count = [], 0
    for pair in options.library:
        library, _, path = pair.partition("=")
        want, have = declared(options.root, library), exported(options.nm, path)
        problems += [f"lib{library}: {name} is declared but not exported" for name in sorted(want - have)]
        problems += [f"lib{library}: {name} is exported but not declared" for name in sorted(have - want)]
        count += len(have)
        if not have:
            problems.append(f"lib{library}: exports nothing")
    tree.verdict("check_symbols", problems, f"{count} symbols")


main()
