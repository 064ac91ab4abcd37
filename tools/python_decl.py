#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_decl.py - the declarations of the public headers as cffi reads them, so that no struct is written twice.

    tools/python_decl.py [HEADER...]                 prints them: of tessera.h unless headers are named
    tools/python_decl.py --out FILE.py [HEADER...]   writes the module of cffi's out-of-line ABI mode (needs cffi)
    tools/python_decl.py --abi                       prints the hash of all public headers that tess_abi() returns

Headers are named relative to include/tessera; those that they include come first. Comments, preprocessor lines, TESS_API
and what C++ alone sees are left out. mpi.h, whose types are MPI's, is not taken. The module has the hash as `abi`.
"""
import argparse
import glob
import hashlib
import os
import re
import sys

INCLUDE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "include", "tessera")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def abi():
    """SHA-256 over the headers in the order of their paths, comments removed and white space joined; 16 digits.

    cmake/abi.cmake computes the same, for the library builds without Python."""
    text = ""
    names = sorted(os.path.relpath(path, INCLUDE) for path in glob.glob(os.path.join(INCLUDE, "**", "*.h"), recursive=True))
    for name in names:
        if name != "mpi.h":
            code = re.sub(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/", " ", read(os.path.join(INCLUDE, name)))
            text += name + ":" + re.sub(r"[ \t\r\n]+", " ", code) + "\n"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_headers(name, found):
    """Adds a header behind those that it includes."""
    path = os.path.normpath(os.path.join(INCLUDE, name))
    if path in found:
        return
    for other in re.findall(r'^#include "(.*)"', read(path), re.MULTILINE):
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
    parts = [declarations_of(read(path)) for path in found]
    return "\n".join(part for part in parts if part) + "\n"


def write_module(path, headers):
    import cffi
    ffi = cffi.FFI()
    ffi.cdef(declarations(headers))
    name = os.path.splitext(os.path.basename(path))[0]
    ffi.set_source(name, None)
    ffi.emit_python_code(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(f'abi = "{abi()}"\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE.py", help="write cffi's module there instead")
    parser.add_argument("--abi", action="store_true", help="print the hash of all public headers")
    parser.add_argument("headers", nargs="*", default=["tessera.h"], metavar="HEADER")
    options = parser.parse_args()
    if options.abi:
        print(abi())
    elif options.out:
        write_module(options.out, options.headers)
    else:
        sys.stdout.write(declarations(options.headers))


if __name__ == "__main__":
    main()
