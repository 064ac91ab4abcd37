#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_headers.py - each public header compiles alone, as strict C11 or as C++11.

    check_headers.py (--c11 CC | --cxx11 CXX) [--mpi INCLUDE-FOLDERS]

mpi.h is left out, and said to be, unless the folders of <mpi.h> are given. An empty compiler ends
with 77, which ctest counts as skipped.
"""
import os
import subprocess
import sys
import tempfile

import tree

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]


def main():
    parser = tree.arguments(__doc__.split("\n")[0])
    parser.add_argument("--c11", metavar="CC")
    parser.add_argument("--cxx11", metavar="CXX")
    parser.add_argument("--mpi", default="", metavar="FOLDERS", help="separated by commas")
    options = parser.parse_args()
    language = ["-x", "c", "-std=c11"] if options.c11 is not None else ["-x", "c++", "-std=c++11"]
    compiler = options.c11 if options.c11 is not None else options.cxx11
    if not compiler:
        print("check_headers: skipped, there is no C++ compiler")
        sys.exit(77)

    problems, checked = [], []
    for path in tree.files(options.root, ["include"], [".h"]):
        command = [compiler, *language, *WARNINGS, "-I", os.path.join(options.root, "include")]
        if os.path.basename(path) == "mpi.h":
            if not options.mpi:
                print(f"{path}: left out, MPI is not part of this build")
                continue
            # The C++ bindings of old Open MPI are not what this header is about.
            command += ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
            command += [flag for folder in options.mpi.split(",") for flag in ("-isystem", folder)]
        with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
            source.write(f'#include "{os.path.relpath(path, "include")}"\nint unused_;\n')
            source.flush()
            result = subprocess.run([*command, source.name], capture_output=True, text=True)
        checked.append(path)
        if result.returncode != 0:
            problems.append(f"{path}: does not compile alone:\n{result.stderr}")
    if not checked:
        problems.append("include/: no headers")
    tree.verdict("check_headers", problems, f"{len(checked)} headers with {compiler}")


main()
