# SPDX-License-Identifier: Apache-2.0
"""tessera_c.py - the few calls of libtessera and libtessera_train that the comparison needs, through cffi.

Structs and functions are those of the headers, by tools/python_decl.py. Arrays are torch's or NumPy's: [heads, tokens,
head_dim], float32, contiguous, given by their address.
"""
import os
import sys

import cffi

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import python_decl

ffi = cffi.FFI()
ffi.cdef(python_decl.declarations(["tessera.h", "model.h", "advanced/machine.h", "advanced/pass.h"]))


def floats(address):
    return ffi.cast("float *", address)


class Tessera:
    """The library with a context of so many threads."""

    def __init__(self, path, threads):
        self.lib = ffi.dlopen(path)
        self.ctx = self.make("tess_ctx", "tess_ctx_create", ffi.new("tess_ctx_opts *", {"threads": threads}))
        info = ffi.new("tess_ctx_info *")
        self.call("tess_ctx_query", self.ctx, info)
        self.isa, self.threads = ffi.string(info.isa).decode(), info.threads

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != self.lib.TESS_OK:
            raise RuntimeError(ffi.string(self.lib.tess_last_error()).decode())

    def make(self, kind, name, *arguments):
        """The object that a call returns through its last argument."""
        made = ffi.new(kind + " **")
        self.call(name, *arguments, made)
        return made[0]

    def peak(self):
        """The FMA rate of all threads just now, in FLOP/s; takes about 3 ms."""
        timing = ffi.new("tess_timing *")
        opts = ffi.new("tess_timing_opts *", {"samples": 1, "samples_max": 1, "quiet": 0.5})
        nothing = ffi.callback("tess_timed_fn", lambda user: 0)
        self.call("tess_timing_run", self.ctx, opts, nothing, ffi.NULL, timing)
        return timing.flops


class Attention:
    """Attention of one shape over torch tensors, dense or over a mask of square blocks."""

    def __init__(self, tessera, heads, tokens, dim, mask=None, block=0):
        self.tessera, self.strides = tessera, (heads * tokens * dim, tokens * dim, dim)
        shape = {"batch": 1, "heads": heads, "head_dim": dim, "tokens_q": tokens, "tokens_k": tokens}
        self.attn = tessera.make("tess_attn", "tess_attn_create", tessera.ctx, ffi.new("tess_attn_shape *", shape))
        self.sel = ffi.NULL
        if mask is not None:
            lists = {"batch": 1, "heads": heads, "tokens_q": tokens, "tokens_k": tokens, "group": block, "unit": block}
            self.sel = tessera.make("tess_selection", "tess_selection_create", tessera.ctx,
                                    ffi.new("tess_sel_shape *", lists), mask.numel())
            tessera.call("tess_selection_set_mask", self.sel, ffi.cast("void *", mask.data_ptr()), 0)

    def view(self, tensor):
        stride_b, stride_h, stride_s = self.strides
        return ffi.new("tess_view *", {"data": ffi.cast("void *", tensor.data_ptr()), "stride_b": stride_b,
                                       "stride_h": stride_h, "stride_s": stride_s})

    def forward(self, q, k, v, o, lse):
        views = [self.view(x) for x in (q, k, v, o)]
        self.tessera.call("tess_attn_forward", self.attn, self.sel, *views, floats(lse.data_ptr()))

    def backward(self, q, k, v, o, lse, dout, dq, dk, dv):
        kept = {name: self.view(x) for name, x in zip("qkvo", (q, k, v, o))}
        saved = ffi.new("tess_attn_saved *", {**kept, "lse": floats(lse.data_ptr())})
        views = [self.view(x) for x in (dout, dq, dk, dv)]
        self.tessera.call("tess_attn_backward", self.attn, self.sel, saved, views[0], ffi.NULL, *views[1:])

    def close(self):
        self.tessera.lib.tess_attn_destroy(self.attn)
        self.tessera.lib.tess_selection_destroy(self.sel)


class Step:
    """Forward and backward of a model from a folder, over arrays given by their addresses."""

    def __init__(self, tessera, folder, shape):
        self.tessera = tessera
        opts = ffi.new("tess_model_opts *", {"gradients": 1})
        self.model = tessera.make("tess_model", "tess_model_load", tessera.ctx, folder.encode(), opts)
        self.passes = tessera.make("tess_pass", "tess_pass_create", self.model, ffi.new("tess_pass_shape *", shape))

    def forward(self, x, timestep, text, out):
        given = ffi.new("tess_model_in *", {"x": floats(x), "timestep": floats(timestep), "text": floats(text)})
        self.tessera.call("tess_pass_forward", self.passes, given, floats(out))

    def backward(self, dout):
        self.tessera.call("tess_model_zero_gradients", self.model)
        self.tessera.call("tess_pass_backward", self.passes, floats(dout), ffi.NULL)

    def params(self):
        """(name, number of elements, address of the gradient) of every parameter."""
        param, index = ffi.new("tess_param *"), 0
        while self.tessera.lib.tess_model_param(self.model, index, param) == self.tessera.lib.TESS_OK:
            yield ffi.string(param.name).decode(), param.count, int(ffi.cast("uintptr_t", param.gradient))
            index += 1
