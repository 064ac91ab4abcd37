#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decl.py - what Python sees of the public headers (tools/python_decl.py) is what C sees.

    decl.py --cc CC --library LIBRARY... [--train LIBRARY]

Sizes of all public structs and offsets of their members, values of all constants: as a C program prints them that
includes the headers. Functions: each is found in one of the libraries. tess_abi() is the hash that Python computes. The
module of the out-of-line mode has the same structs. Then bench/peers/tessera_c.py runs attention and, with --train, a
step of a model. Skips (77) without cffi.
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
import tessera_c

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


class Array:
    """What tessera_c needs of a torch tensor."""

    def __init__(self, values, kind="float"):
        self.data, self.count = tessera_c.ffi.new(kind + "[]", values), len(values)

    def data_ptr(self):
        return int(tessera_c.ffi.cast("uintptr_t", self.data))

    def numel(self):
        return self.count


def run_attention(library):
    """Attention over equal keys is the mean of the values."""
    heads, tokens, dim = 2, 16, 8
    tessera = tessera_c.Tessera(library, 1)
    n = heads * tokens * dim
    q, k, v, o = Array([0.5] * n), Array([0.25] * n), Array([float(i // dim % tokens) for i in range(n)]), Array([0.0] * n)
    lse, gradients = Array([0.0] * heads * tokens), [Array([1.0] * n) for _ in range(4)]
    for mask in (None, Array([1, 0, 0, 1] * heads, "uint8_t")):
        attention = tessera_c.Attention(tessera, heads, tokens, dim, mask, tokens // 2)
        attention.forward(q, k, v, o, lse)
        attention.backward(q, k, v, o, lse, *gradients)
        attention.close()
        want = (tokens - 1) / 2 if mask is None else (tokens / 2 - 1) / 2
        if abs(o.data[0] - want) > 1e-4 or abs(gradients[3].data[0] - 1) > 1e-4:
            sys.exit(f"attention is {o.data[0]}, must be {want}; dv is {gradients[3].data[0]}, must be 1")
    if not tessera.peak() > 0:
        sys.exit("the FMA rate is not above 0")


def run_step(library, folder):
    """The gradient of the last bias, which adds to one element of every patch, is the sum of dout over patches."""
    ffi, tessera = tessera_c.ffi, tessera_c.Tessera(library, 1)
    config = ffi.new("tess_model_config *")
    tessera.call("tess_model_preset", b"tiny", config)
    made = tessera.make("tess_model", "tess_model_create", tessera.ctx, config, ffi.new("tess_model_opts *"))
    tessera.call("tess_model_save", made, folder.encode(), tessera.lib.TESS_WEIGHTS_DIFFUSERS)
    frames, height, width = (2 * side for side in config.patch)
    step = tessera_c.Step(tessera, folder, {"batch": 1, "frames": frames, "height": height, "width": width, "train": 1})
    pixels = frames * height * width
    x, out, dout = (Array([value] * channels * pixels) for value, channels in
                    ((0.1, config.in_channels), (0.0, config.out_channels), (1.0, config.out_channels)))
    timestep, text = Array([500.0]), Array([0.5] * config.text_len * config.text_dim)
    step.forward(*(a.data_ptr() for a in (x, timestep, text, out)))
    step.backward(dout.data_ptr())
    gradients = {name: [tessera_c.floats(address)[i] for i in range(count)] for name, count, address in step.params()}
    bias = gradients.get("proj_out.bias", [])
    if len(gradients) < 10 or not bias or any(abs(g - 8) > 1e-3 for g in bias):
        sys.exit(f"of {len(gradients)} gradients that of proj_out.bias is {bias}, must be 8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cc", required=True)
    parser.add_argument("--library", required=True)
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
    functions = check_functions(ffi, text, [options.library, *([options.train] if options.train else [])])
    run_attention(options.library)
    if options.train:
        with tempfile.TemporaryDirectory() as folder:
            run_step(options.train, os.path.join(folder, "model"))
    print(f"python_decl: {len(lines)} sizes and offsets, {len(constants)} constants, {functions} functions, all well")


main()
