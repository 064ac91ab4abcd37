# SPDX-License-Identifier: Apache-2.0
"""tessera_c.py - the few calls of libtessera that the comparison needs, through ctypes.

The structs repeat include/tessera/base.h, attn.h and model.h. Arrays are torch's or NumPy's: [heads, tokens,
head_dim], float32, contiguous, given by their address.
"""
import ctypes as c

TIMED = c.CFUNCTYPE(c.c_int, c.c_void_p)


class CtxOpts(c.Structure):
    _fields_ = [("isa", c.c_char_p), ("threads", c.c_int), ("allocator", c.c_void_p * 3), ("log", c.c_void_p),
                ("log_user", c.c_void_p), ("log_level", c.c_int), ("progress", c.c_void_p),
                ("progress_user", c.c_void_p)]


class CtxInfo(c.Structure):
    _fields_ = [("isa", c.c_char_p), ("threads", c.c_int), ("bytes_now", c.c_int64), ("bytes_peak", c.c_int64),
                ("allocations", c.c_int64)]


class View(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("stride_b", c.c_int64), ("stride_h", c.c_int64),
                ("stride_s", c.c_int64)]


class AttnShape(c.Structure):
    _fields_ = [("batch", c.c_int), ("heads", c.c_int), ("head_dim", c.c_int), ("tokens_q", c.c_int64),
                ("tokens_k", c.c_int64), ("scale", c.c_float), ("precision", c.c_int)]


class Saved(c.Structure):
    _fields_ = [(name, c.POINTER(View)) for name in "qkvo"] + [("lse", c.c_void_p)]


class SelShape(c.Structure):
    _fields_ = [("batch", c.c_int), ("heads", c.c_int), ("tokens_q", c.c_int64), ("tokens_k", c.c_int64),
                ("group", c.c_int32), ("unit", c.c_int32), ("bounds_q", c.c_void_p), ("bounds_k", c.c_void_p),
                ("n_q", c.c_int32), ("n_k", c.c_int32)]


class TimingOpts(c.Structure):
    _fields_ = [("samples", c.c_int), ("samples_max", c.c_int), ("quiet", c.c_double)]


class Timing(c.Structure):
    _fields_ = [("best", c.c_double), ("median", c.c_double), ("low", c.c_double), ("high", c.c_double),
                ("kept", c.c_int), ("dropped", c.c_int), ("disturbed", c.c_int), ("flops", c.c_double)]


class Tessera:
    """The library with a context of so many threads."""

    def __init__(self, path, threads):
        self.lib = c.CDLL(path)
        self.lib.tess_last_error.restype = c.c_char_p
        self.ctx = c.c_void_p()
        self.call("tess_ctx_create", c.byref(CtxOpts(threads=threads)), c.byref(self.ctx))
        info = CtxInfo()
        self.call("tess_ctx_query", self.ctx, c.byref(info))
        self.isa, self.threads = info.isa.decode(), info.threads

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise RuntimeError(self.lib.tess_last_error().decode())

    def peak(self):
        """The FMA rate of all threads just now, in FLOP/s; takes about 3 ms."""
        timing = Timing()
        self.call("tess_timing_run", self.ctx, c.byref(TimingOpts(1, 1, 0.5)), TIMED(lambda user: 0), None,
                  c.byref(timing))
        return timing.flops


class Attention:
    """Attention of one shape over torch tensors, dense or over a mask of square blocks."""

    def __init__(self, tessera, heads, tokens, dim, mask=None, block=0):
        self.tessera, self.strides = tessera, (heads * tokens * dim, tokens * dim, dim)
        self.attn, self.sel = c.c_void_p(), c.c_void_p()
        shape = AttnShape(1, heads, dim, tokens, tokens, 0.0, 0)
        tessera.call("tess_attn_create", tessera.ctx, c.byref(shape), c.byref(self.attn))
        if mask is not None:
            lists = SelShape(1, heads, tokens, tokens, block, block)
            tessera.call("tess_selection_create", tessera.ctx, c.byref(lists), c.c_int64(mask.numel()),
                         c.byref(self.sel))
            tessera.call("tess_selection_set_mask", self.sel, c.c_void_p(mask.data_ptr()), 0)

    def view(self, tensor):
        return View(tensor.data_ptr(), 0, *self.strides)

    def forward(self, q, k, v, o, lse):
        views = [c.byref(self.view(x)) for x in (q, k, v, o)]
        self.tessera.call("tess_attn_forward", self.attn, self.sel, *views, c.c_void_p(lse.data_ptr()))

    def backward(self, q, k, v, o, lse, dout, dq, dk, dv):
        saved = Saved(*[c.pointer(self.view(x)) for x in (q, k, v, o)], lse.data_ptr())
        views = [c.byref(self.view(x)) for x in (dout, dq, dk, dv)]
        self.tessera.call("tess_attn_backward", self.attn, self.sel, c.byref(saved), views[0], None, *views[1:])

    def close(self):
        self.tessera.lib.tess_attn_destroy(self.attn)
        self.tessera.lib.tess_selection_destroy(self.sel)


class ModelOpts(c.Structure):
    _fields_ = [("gradients", c.c_int), ("seed", c.c_uint64)]


class PassShape(c.Structure):
    _fields_ = [("batch", c.c_int), ("frames", c.c_int), ("height", c.c_int), ("width", c.c_int),
                ("text_len", c.c_int), ("train", c.c_int), ("keep", c.c_int), ("store", c.c_int),
                ("cube", c.c_void_p)]


class ModelIn(c.Structure):
    _fields_ = [("x", c.c_void_p), ("timestep", c.c_void_p), ("text", c.c_void_p)]


class Param(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("layer", c.c_int), ("rank", c.c_int),
                ("shape", c.c_int64 * 5), ("count", c.c_int64), ("value", c.c_void_p), ("gradient", c.c_void_p)]


class Step:
    """Forward and backward of a model from a folder, over arrays given by their addresses."""

    def __init__(self, tessera, folder, shape):
        self.tessera, self.model, self.passes = tessera, c.c_void_p(), c.c_void_p()
        tessera.call("tess_model_load", tessera.ctx, folder.encode(), c.byref(ModelOpts(1, 0)), c.byref(self.model))
        tessera.call("tess_pass_create", self.model, c.byref(PassShape(**shape)), c.byref(self.passes))

    def forward(self, x, timestep, text, out):
        self.tessera.call("tess_pass_forward", self.passes, c.byref(ModelIn(x, timestep, text)), c.c_void_p(out))

    def backward(self, dout):
        self.tessera.call("tess_model_zero_gradients", self.model)
        self.tessera.call("tess_pass_backward", self.passes, c.c_void_p(dout), None)

    def params(self):
        """(name, number of elements, address of the gradient) of every parameter."""
        param, index = Param(), 0
        while self.tessera.lib.tess_model_param(self.model, index, c.byref(param)) == 0:
            yield param.name.decode(), param.count, param.gradient
            index += 1
