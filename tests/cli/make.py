#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py - writes small tensor files for the cases, with nothing but the standard library.

    make.py OUT NAME:DTYPE:SHAPE[:VALUES]...

OUT ends in .npy, .npz or .safetensors; SHAPE is 2x3 or empty for a scalar; VALUES are separated by
commas, are repeated to fill the tensor, and may be nan and inf. Without VALUES the data is a hole in
the file: as large as you like, and free.
"""
import io
import itertools
import json
import struct
import sys
import zipfile

CODES = {"F32": "f", "F64": "d", "F16": "e", "I32": "i", "I64": "q", "U8": "B", "BOOL": "?",
         "F8_E4M3": "B"}  # bytes of a type Tessera does not read
NUMPY = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I32": "<i4", "I64": "<i8", "U8": "|u1", "BOOL": "|b1"}


class Tensor:
    def __init__(self, text):
        self.name, self.dtype, shape, *values = text.split(":")
        self.shape = [int(n) for n in shape.split("x")] if shape else []
        self.count = 1
        for n in self.shape:
            self.count *= n
        self.size = struct.calcsize(CODES[self.dtype]) * self.count
        self.data = None
        if values:
            kind = float if CODES[self.dtype] in "fde" else int
            repeated = itertools.islice(itertools.cycle([kind(v) for v in values[0].split(",")]), self.count)
            self.data = struct.pack(f"<{self.count}{CODES[self.dtype]}", *repeated)


def npy_header(t):
    shape = "(" + "".join(f"{n}, " for n in t.shape) + ")"
    text = f"{{'descr': '{NUMPY[t.dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def put(f, t):
    if t.data is None:
        f.truncate(f.tell() + t.size)
        f.seek(0, io.SEEK_END)
    else:
        f.write(t.data)


def main():
    path, tensors = sys.argv[1], [Tensor(text) for text in sys.argv[2:]]
    if path.endswith(".npz"):
        with zipfile.ZipFile(path, "w") as z:
            for t in tensors:
                z.writestr(zipfile.ZipInfo(t.name + ".npy"), npy_header(t) + t.data)
        return
    with open(path, "wb") as f:
        if path.endswith(".npy"):
            f.write(npy_header(tensors[0]))
        else:
            header, at = {"__metadata__": {"format": "pt"}}, 0
            for t in tensors:
                header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + t.size]}
                at += t.size
            text = json.dumps(header)
            text += " " * (-len(text) % 8)
            f.write(struct.pack("<Q", len(text)) + text.encode())
        for t in tensors:
            put(f, t)


main()
