# SPDX-License-Identifier: Apache-2.0
"""attend_bf16.py - our attention with products in bf16 on tensors of PyTorch.

q, k, v and dout are float32 tensors [batch, heads, tokens, head_dim] whose numbers are those of bf16: what is timed
includes the rounding and packing of every call. Outputs are allocated in every call, as PyTorch does.
"""
import torch

from tessera._lib import NULL, check, context, ffi, lib


def view(x):
    """A tess_view of a tensor whose rows are contiguous."""
    made = ffi.new("tess_view *")
    made.data, made.dtype = ffi.cast("void *", x.data_ptr()), lib.TESS_DTYPE_F32
    made.stride_b, made.stride_h, made.stride_s = x.stride()[:3]
    return made


class AttendBf16:
    """Dense attention of one shape; isa is the instruction set that multiplies, or None where fp32 does."""

    def __init__(self, q, threads):
        shape = ffi.new("tess_attn_shape *", {"batch": q.shape[0], "heads": q.shape[1], "head_dim": q.shape[3],
                                              "tokens_q": q.shape[2], "tokens_k": q.shape[2],
                                              "precision": lib.TESS_PRECISION_BF16})
        made, use = ffi.new("tess_attn **"), ffi.new("tess_bf16_use *")
        check(lib.tess_attn_create(context(threads), shape, made))
        self._attn = ffi.gc(made[0], lib.tess_attn_destroy)
        check(lib.tess_bf16_query(context(threads), use))
        self.isa = ffi.string(use.isa).decode() if use.precision == lib.TESS_PRECISION_BF16 else None

    def forward(self, q, k, v):
        o, lse = torch.empty_like(q), torch.empty(q.shape[:3])
        check(lib.tess_attn_forward(self._attn, NULL, view(q), view(k), view(v), view(o),
                                    ffi.cast("float *", lse.data_ptr())))
        return o, lse

    def both(self, q, k, v, dout):
        """The gradients by q, k and v, after a forward pass."""
        o, lse = self.forward(q, k, v)
        views = [view(x) for x in (q, k, v, o)]
        saved = ffi.new("tess_attn_saved *", [*views, ffi.cast("float *", lse.data_ptr())])
        found = [torch.empty_like(x) for x in (q, k, v)]
        check(lib.tess_attn_backward(self._attn, NULL, saved, view(dout), NULL, *(view(x) for x in found)))
        return found
