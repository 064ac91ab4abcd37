#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decl.py - what Python sees of the public headers (tools/python_decl.py) is what C sees.

    decl.py --cc CC --library LIBRARY --gpu LIBRARY [--train LIBRARY]

Sizes of all public structs and offsets of their members, values of all constants: as a C program prints them that
includes the headers. Functions: each is found in one of the libraries. tess_abi() is the hash that Python computes. The
module of the out-of-line mode has the same structs. With --train, bench/peers/train_library.py runs a step of a model.
Skips (77) without cffi.
"""
import argparse
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "bench", "peers")]
try:
    import cffi
except ImportError:
    print("skipped: Python has no cffi (Debian: python3-cffi)")
    sys.exit(77)
import python_decl
from train_library import Step, TrainLibrary, ffi as train_ffi, floats

TRAIN = {"media.h", "data.h", "model.h", "train.h", "advanced/clip.h", "advanced/pass.h", "advanced/sparse.h",
         "advanced/step.h"}


def public_headers(train):
    names = sorted(os.path.relpath(path, python_decl.INCLUDE)
                   for path in glob.glob(os.path.join(python_decl.INCLUDE, "**", "*.h"), recursive=True))
    return [name for name in names if name != "mpi.h" and (train or name not in TRAIN)]


def structs_of(ffi):
    """Lines "NAME SIZE" and "NAME.MEMBER OFFSET" as cffi lays the structs out, and what C must print for them."""
    lines, prints = [], []
    for name in ffi.list_types()[0]:
        kind = ffi.typeof(name)
        if kind.kind != "struct":
            continue
        try:
            size = ffi.sizeof(name)  # first: cffi 2.0 aborts where members are asked for before
        except (ValueError, getattr(ffi, "error", ValueError)):
            continue  # opaque
        lines.append(f"{name} {size}")
        prints.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for member, field in kind.fields:
            lines.append(f"{name}.{member} {field.offset}")
            prints.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
    return lines, prints


def constants_of(ffi, text):
    """The same for the constants of enums."""
    library = ffi.dlopen(None)
    names = sorted(set(re.findall(r"\bTESS_[A-Z0-9_]+\b", text)))
    return ([f"{name} {getattr(library, name)}" for name in names],
            [f'printf("{name} %lld\\n", (long long){name});' for name in names])


def c_prints(cc, headers, prints):
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "sizes.c"), os.path.join(folder, "sizes")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <stddef.h>\n#include <stdio.h>\n")
            file.write("".join(f'#include "tessera/{name}"\n' for name in headers))
            file.write("int main(void)\n{\n" + "\n".join(prints) + "\nreturn 0;\n}\n")
        subprocess.run([cc, "-I", os.path.dirname(python_decl.INCLUDE), "-o", program, source], check=True)
        return subprocess.run([program], check=True, text=True, stdout=subprocess.PIPE).stdout.split("\n")[:-1]


def check_module(headers, lines):
    """The module that --out writes has the same layout."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "_decl.py")
        python_decl.write_module(path, headers)
        spec = importlib.util.spec_from_file_location("_decl", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if structs_of(module.ffi)[0] != lines:
        sys.exit("the module of the out-of-line mode has other structs")


def check_functions(ffi, text, libraries):
    opened = [ffi.dlopen(path) for path in libraries]
    compiled = ffi.string(opened[0].tess_abi()).decode()
    if compiled != python_decl.abi():
        sys.exit(f"tess_abi() is {compiled}, python_decl.py has {python_decl.abi()}")
    names = sorted(set(re.findall(r"\b(tess_\w+)\(", text)))
    missing = [name for name in names if not any(hasattr(library, name) for library in opened)]
    if missing:
        sys.exit(f"in no library: {', '.join(missing)}")
    return len(names)


def run_step(path, folder):
    """The gradient of the last bias, which adds to one element of every patch, is the sum of dout over patches."""
    library = TrainLibrary(path, 1)
    config = train_ffi.new("tess_model_config *")
    library.call("tess_model_preset", b"tiny", config)
    made = library.make("tess_model", "tess_model_create", library.ctx, config, train_ffi.new("tess_model_opts *"))
    library.call("tess_model_save", made, folder.encode(), library.lib.TESS_WEIGHTS_DIFFUSERS)
    frames, height, width = (2 * side for side in config.patch)
    step = Step(library, folder, {"batch": 1, "frames": frames, "height": height, "width": width, "train": 1})
    pixels = frames * height * width
    sizes = ((0.1, config.in_channels * pixels), (500.0, 1), (0.5, config.text_len * config.text_dim),
             (0.0, config.out_channels * pixels), (1.0, config.out_channels * pixels))
    arrays = [train_ffi.new("float[]", [value] * count) for value, count in sizes]
    *given, dout = (int(train_ffi.cast("uintptr_t", array)) for array in arrays)
    step.forward(*given)
    step.backward(dout)
    gradients = {name: [floats(address)[i] for i in range(count)] for name, count, address in step.params()}
    bias = gradients.get("proj_out.bias", [])
    if len(gradients) < 10 or not bias or any(abs(g - 8) > 1e-3 for g in bias):
        sys.exit(f"of {len(gradients)} gradients that of proj_out.bias is {bias}, must be 8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cc", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--train", default="")
    options = parser.parse_args()
    headers = public_headers(options.train)
    text = python_decl.declarations(headers)
    ffi = cffi.FFI()
    ffi.cdef(text)
    lines, prints = structs_of(ffi)
    constants, more = constants_of(ffi, text)
    for python, said in zip(lines + constants, c_prints(options.cc, headers, prints + more), strict=True):
        if python != said:
            sys.exit(f"Python has {python}, C has {said}")
    check_module(headers, lines)
    functions = check_functions(ffi, text, [options.library, options.gpu, *([options.train] if options.train else [])])
    if options.train:
        with tempfile.TemporaryDirectory() as folder:
            run_step(options.train, os.path.join(folder, "model"))
    print(f"python_decl: {len(lines)} sizes and offsets, {len(constants)} constants, {functions} functions, all well")


main()
