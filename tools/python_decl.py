#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_decl.py - the declarations of the public headers as cffi reads them, so that no struct is written twice.

    tools/python_decl.py [HEADER...]                 prints them: of tessera.h unless headers are named
    tools/python_decl.py --out FILE.py [HEADER...]   writes the module of cffi's out-of-line ABI mode (needs cffi)

Headers are named relative to include/tessera; those that they include come first. Comments, preprocessor lines, TESS_API
and what C++ alone sees are left out. mpi.h, whose types are MPI's, is not taken.
"""
import argparse
import os
import re
import sys

INCLUDE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "include", "tessera")


def find_headers(name, found):
    """Adds a header behind those that it includes."""
    path = os.path.normpath(os.path.join(INCLUDE, name))
    if path in found:
        return
    with open(path, encoding="utf-8") as file:
        for other in re.findall(r'^#include "(.*)"', file.read(), re.MULTILINE):
            find_headers(os.path.join(os.path.dirname(path), other), found)
    found.append(path)


def declarations_of(text):
    """A header without what is not a declaration of C."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bTESS_(API|BEGIN_DECLS|END_DECLS)\b", "", text)
    return re.sub(r"\n\s*\n+", "\n", text).strip()


def declarations(headers=("tessera.h",)):
    """The text that cffi's cdef takes."""
    found = []
    for name in headers:
        find_headers(name, found)
    parts = []
    for path in found:
        with open(path, encoding="utf-8") as file:
            parts.append(declarations_of(file.read()))
    return "\n".join(part for part in parts if part) + "\n"


def write_module(path, headers):
    import cffi
    ffi = cffi.FFI()
    ffi.cdef(declarations(headers))
    name = os.path.splitext(os.path.basename(path))[0]
    ffi.set_source(name, None)
    ffi.emit_python_code(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE.py", help="write cffi's module there instead")
    parser.add_argument("headers", nargs="*", default=["tessera.h"], metavar="HEADER")
    options = parser.parse_args()
    if options.out:
        write_module(options.out, options.headers)
    else:
        sys.stdout.write(declarations(options.headers))


if __name__ == "__main__":
    main()
