# SPDX-License-Identifier: Apache-2.0
"""train_library.py - forward and backward of a model by libtessera_train, through cffi.

The Python package has no training stack, so step_measure.py calls the library itself. Structs and functions are those
of the headers, by tools/python_decl.py. Arrays are float32, contiguous, given by their address.
"""
import os
import sys

import cffi

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import python_decl

ffi = cffi.FFI()
ffi.cdef(python_decl.declarations(["tessera.h", "model.h", "advanced/pass.h", "advanced/machine.h"]))


def floats(address):
    return ffi.cast("float *", address)


class TrainLibrary:
    """libtessera_train with a context of so many threads."""

    def __init__(self, path, threads):
        self.lib = ffi.dlopen(path)
        self.ctx = self.make("tess_ctx", "tess_ctx_create", ffi.new("tess_ctx_opts *", {"threads": threads}))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != self.lib.TESS_OK:
            raise RuntimeError(ffi.string(self.lib.tess_last_error()).decode())

    def products(self):
        """The instruction set that multiplies in bf16, or why fp32 does."""
        use = ffi.new("tess_bf16_use *")
        self.call("tess_bf16_query", self.ctx, use)
        found = use.isa if use.precision == self.lib.TESS_PRECISION_BF16 else use.why
        return ffi.string(found).decode()

    def make(self, kind, name, *arguments):
        """The object that a call returns through its last argument."""
        made = ffi.new(kind + " **")
        self.call(name, *arguments, made)
        return made[0]


class Step:
    """Forward and backward of a model from a folder."""

    def __init__(self, library, folder, shape):
        self.library = library
        opts = ffi.new("tess_model_opts *", {"gradients": 1})
        self.model = library.make("tess_model", "tess_model_load", library.ctx, folder.encode(), opts)
        self.passes = library.make("tess_pass", "tess_pass_create", self.model, ffi.new("tess_pass_shape *", shape))

    def forward(self, x, timestep, text, out):
        given = ffi.new("tess_model_in *", {"x": floats(x), "timestep": floats(timestep), "text": floats(text)})
        self.library.call("tess_pass_forward", self.passes, given, floats(out))

    def backward(self, dout):
        self.library.call("tess_model_zero_gradients", self.model)
        self.library.call("tess_pass_backward", self.passes, floats(dout), ffi.NULL)

    def params(self):
        """(name, number of elements, address of the gradient) of every parameter."""
        param, index = ffi.new("tess_param *"), 0
        while self.library.lib.tess_model_param(self.model, index, param) == self.library.lib.TESS_OK:
            yield ffi.string(param.name).decode(), param.count, int(ffi.cast("uintptr_t", param.gradient))
            index += 1
