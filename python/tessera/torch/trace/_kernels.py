# SPDX-License-Identifier: Apache-2.0
"""_kernels.py - operators that CUDA has as one kernel and a CPU composes of several, recorded as CUDA runs them.

RMSNorm (torch 2.9 and newer), dropout, dropout inside attention, and optimisers over lists of parameters (foreach), which
torch.optim takes by itself for parameters on a GPU only. Values are those of the composition.
"""
import functools

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type

from ._patches import put

CHOICES = ("cpu", "cuda")


def _plain(*tensors):
    return not any(t is not None and is_traceable_wrapper_subclass_type(type(t)) for t in tensors)


class _RMSNorm(torch.autograd.Function):
    """aten::_fused_rms_norm and its backward pass; keeps the input and 1 / rms, as the kernel does."""

    @staticmethod
    def forward(ctx, x, weight, dims, eps, recorder):
        def compute():
            high = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
            scale = (high.square().mean(dims, keepdim=True) + eps).rsqrt()
            out = high * scale
            return [(out if weight is None else out * weight).to(x.dtype), scale]
        out, scale = recorder.kernel("_fused_rms_norm", [x] if weight is None else [x, weight], compute)
        ctx.save_for_backward(x, weight, scale)
        ctx.dims, ctx.recorder = dims, recorder
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors

        def compute():
            high, given = x.to(scale.dtype), grad.to(scale.dtype)
            scaled = given if weight is None else given * weight
            normal = high * scale
            dx = (scale * (scaled - normal * (scaled * normal).mean(ctx.dims, keepdim=True))).to(x.dtype)
            if weight is None:
                return [dx]
            over = tuple(range(x.dim() - weight.dim()))
            return [dx, (given * normal).sum(over).to(weight.dtype)] if over else [dx, (given * normal).to(weight.dtype)]
        given = [grad, x, scale] if weight is None else [grad, x, scale, weight]
        made = ctx.recorder.kernel("_fused_rms_norm_backward", given, compute)
        return made[0], made[1] if weight is not None else None, None, None, None


def _rms_norm(original, recorder):
    def rms_norm(input, normalized_shape, weight=None, eps=None):
        if not _plain(input, weight) or recorder.inside_kernel:
            return original(input, normalized_shape, weight, eps)
        dims = tuple(range(-len(normalized_shape), 0))
        return _RMSNorm.apply(input, weight, dims, torch.finfo(input.dtype).eps if eps is None else eps, recorder)
    return functools.wraps(original)(rms_norm)


def _dropout(original):
    def dropout(input, p=0.5, training=True, inplace=False):
        if inplace or not training or not 0.0 < p < 1.0 or not _plain(input):
            return original(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]
    return functools.wraps(original)(dropout)


def _attention(original):
    def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
        return original(query, key, value, attn_mask, 0.0, *args, **kwargs)
    return scaled_dot_product_attention


def of_cuda(recorder, stack):
    """Until the stack is left, CUDA's operators are recorded."""
    if hasattr(torch.ops.aten, "_fused_rms_norm_backward"):
        put(stack, torch, "rms_norm", _rms_norm(torch.rms_norm, recorder))
    put(stack, F, "dropout", _dropout(F.dropout))
    put(stack, F, "scaled_dot_product_attention", _attention(F.scaled_dot_product_attention))
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer
    from torch.utils import _foreach_utils
    known = optimizer._get_foreach_kernels_supported_devices
    put(stack, optimizer, "_get_foreach_kernels_supported_devices", lambda: [*known(), "cpu"])
    for known_types in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        stack.callback(known_types.remove, FakeTensor)
        known_types.append(FakeTensor)
