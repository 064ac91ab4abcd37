#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_symbols.py - the symbols a shared library exports are exactly the declared ones.

    check_symbols.py --library tessera=build/release/lib/libtessera.so ...

Declared are the functions marked TESS_API in the library's public headers. Libraries have copies of
internal functions of libtessera; no writable data may be in two of them, since each would have a
state of its own.
"""
import re
import subprocess

import tree

def library_of(root, path):
    match = re.search(r"Link with lib(\w+)", tree.read(root, path))
    return match.group(1) if match else "tessera"


def declared(root, library):
    names = set()
    for path in tree.files(root, ["include"], [".h"]):
        if library_of(root, path) == library:
            text = re.sub(r"^[ \t]*#.*?(?<!\\)$", "", tree.code(tree.read(root, path)), flags=re.M | re.S)
            names.update(re.findall(r"\bTESS_API\b[^;{]*?\b(\w+)\s*\(", text))
    return names


def exported(nm, path):
    output = subprocess.run([nm, "-D", "--defined-only", path], check=True, capture_output=True, text=True)
    names = {line.split()[-1].split("@")[0] for line in output.stdout.splitlines()}
    return names - {"_init", "_fini", "_edata", "_end", "__bss_start"}


def writable(objdump, path):
    """Variables of the library, without those that the compiler and the linker make."""
    output = subprocess.run([objdump, "-t", path], check=True, capture_output=True, text=True)
    found = re.findall(r" (?:\.data|\.bss|\.tdata|\.tbss)\t\S+ +(?:\.hidden )?([a-zA-Z]\S*)$", output.stdout, re.M)
    return {name for name in found if not name.startswith("completed.")}


def main():
    parser = tree.arguments(__doc__.split("\n")[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--library", action="append", required=True, metavar="NAME=PATH")
    options = parser.parse_args()
    problems, count, owners = [], 0, {}
    for pair in options.library:
        library, _, path = pair.partition("=")
        want, have = declared(options.root, library), exported(options.nm, path)
        problems += [f"lib{library}: {name} is declared but not exported" for name in sorted(want - have)]
        problems += [f"lib{library}: {name} is exported but not declared" for name in sorted(have - want)]
        count += len(have)
        for name in sorted(writable(options.objdump, path)):
            if owners.setdefault(name, library) != library:
                problems.append(f"lib{library}: the variable {name} is in lib{owners[name]} too")
        if not have:
            problems.append(f"lib{library}: exports nothing")
    tree.verdict("check_symbols", problems, f"{count} symbols")


main()
