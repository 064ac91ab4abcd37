# SPDX-License-Identifier: Apache-2.0
"""_operator.py - attention over a selection as an operator of PyTorch, with gradients.

    torch.ops.tessera.attend(q, k, v, handle, scale, compensate) -> (o, lse)

A selection goes in as a tensor of one number, its handle (_handle.py). Tensors of a GPU, and those of a named backend, go to
the operator of _gpu_operator.py.

The kernels compute in fp32 on CPUs. Tensors of bf16 and fp16 are widened on the way in and rounded on the way out;
head_dim is padded with zeros to a multiple of 8, which changes neither scores nor outputs.
"""
from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from .._attention import COMPENSATE_MAX, attention_object
from .._lib import NULL, ArgumentError, ArgumentTypeError, check, ffi, integer, lib, number
from .._selection import Selection
from ._gpu_operator import WORKSPACE, attend_gpu, check_backend
from ._gradients import add_gradients
from ._handle import handle, selection_of
from ._library import define

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HEAD_DIM_MAX = 256

# ---- the operator ----------------------------------------------------------------------------------------------------

_OFFSETS = [ffi.offsetof("tess_view", name) for name in ("data", "stride_b", "stride_h", "stride_s")]
_VIEW_SIZE = ffi.sizeof("tess_view")
_pack_pointer, _pack_strides = struct.Struct("=Q").pack_into, struct.Struct("=qqq").pack_into
assert _OFFSETS[2:] == [_OFFSETS[1] + 8, _OFFSETS[1] + 16]  # the three strides are neighbours


class _Views(threading.local):
    """Structs for the arguments of a call, zero where they are not set; written as bytes, for an assignment to a field costs
    as much as half of an allocation of PyTorch."""

    def __init__(self) -> None:
        self.array = ffi.new("tess_view[8]")
        self.bytes = ffi.buffer(self.array)
        self.views = [self.array + i for i in range(8)]
        self.saved = ffi.new("tess_attn_saved *")
        self.saved.q, self.saved.k, self.saved.v, self.saved.o = self.views[:4]

    def fill(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Views of these tensors."""
        at, into = 0, self.bytes
        for tensor in tensors:
            b, h, s, _ = tensor.stride()
            _pack_pointer(into, at + _OFFSETS[0], tensor.data_ptr())
            _pack_strides(into, at + _OFFSETS[1], b, h, s)
            at += _VIEW_SIZE
        return self.views


_kept = _Views()


def _floats(tensor: Tensor) -> Any:
    return ffi.cast("float *", tensor.data_ptr())


def _as_kernel(tensor: Tensor, pad: int) -> Tensor:
    """fp32 with contiguous rows of padded head_dim; the tensor itself where it is so already."""
    if tensor.dtype != torch.float32:
        tensor = tensor.float()
    if pad:
        return F.pad(tensor, (0, pad))
    return tensor if tensor.stride(3) == 1 or tensor.shape[3] == 1 else tensor.contiguous()


def _check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.dim() != 4:
        raise ArgumentError(f"q has the shape {tuple(q.shape)}, must be (batch, heads, tokens, head_dim)")
    batch, heads, _, head_dim = q.shape
    want = (batch, heads, k.shape[2] if k.dim() == 4 else 0, head_dim)
    if k.shape != want:
        raise ArgumentError(f"k has the shape {tuple(k.shape)}, must be ({batch}, {heads}, keys, {head_dim}) as q has")
    if v.shape != want:
        raise ArgumentError(f"v has the shape {tuple(v.shape)}, must be that of k, {want}")
    if not 1 <= head_dim <= _HEAD_DIM_MAX:
        raise ArgumentError(f"q has a head_dim of {head_dim}, must be 1..{_HEAD_DIM_MAX}")
    if q.dtype not in _DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ArgumentTypeError(f"q, k and v are of {q.dtype}, {k.dtype} and {v.dtype}, must all be of float32, bfloat16 or float16")


def _object(q: Tensor, k: Tensor, head_dim: int, scale: float, compensate: int) -> Any:
    batch, heads, seq_q, _ = q.shape
    return attention_object(batch, heads, seq_q, k.shape[2], head_dim, scale, compensate, torch.get_num_threads())


def _result(like: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """Where the kernel writes a result of the strides of `like`: (result, buffer for the kernel)."""
    result = torch.empty_like(like)
    if pad == 0 and result.dtype == torch.float32 and result.stride(3) == 1:
        return result, result
    return result, torch.empty((*like.shape[:3], like.shape[3] + pad), dtype=torch.float32)


def _finish(result: Tensor, buffer: Tensor) -> Tensor:
    """The result, with what the kernel wrote into a buffer of its own."""
    if buffer is not result:
        result.copy_(buffer[..., :result.shape[3]])
    return result


def _forward(q: Tensor, k: Tensor, v: Tensor, handle: Optional[Tensor], scale: float, compensate: int) -> tuple[Tensor, Tensor]:
    _check_shapes(q, k, v)
    selection = selection_of(handle)
    head_dim = q.shape[3]
    pad = -head_dim % 8
    o, buffer = _result(q, pad)
    q, k, v = _as_kernel(q, pad), _as_kernel(k, pad), _as_kernel(v, pad)
    lse = q.new_empty(q.shape[:3])
    views = _kept.fill((q, k, v, buffer))
    check(lib.tess_attn_forward(_object(q, k, head_dim + pad, scale, compensate), NULL if selection is None else selection._p,
                                views[0], views[1], views[2], views[3], _floats(lse)))
    return (o if buffer is o else _finish(o, buffer)), lse


def _backward(do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
              handle: Optional[Tensor], scale: float, compensate: int) -> tuple[Tensor, Tensor, Tensor]:
    selection = selection_of(handle)
    head_dim = q.shape[3]
    pad = -head_dim % 8
    (dq, buffer_q), (dk, buffer_k), (dv, buffer_v) = _result(q, pad), _result(k, pad), _result(v, pad)
    q, k, v, o, do = _as_kernel(q, pad), _as_kernel(k, pad), _as_kernel(v, pad), _as_kernel(o, pad), _as_kernel(do, pad)
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.float().contiguous()
    views, saved = _kept.fill((q, k, v, o, do, buffer_q, buffer_k, buffer_v)), _kept.saved
    saved.lse = _floats(lse)
    check(lib.tess_attn_backward(_object(q, k, head_dim + pad, scale, compensate), NULL if selection is None else selection._p,
                                 saved, views[4], NULL if dlse is None else _floats(dlse), views[5], views[6], views[7]))
    return _finish(dq, buffer_q), _finish(dk, buffer_k), _finish(dv, buffer_v)


attend = define("attend(Tensor q, Tensor k, Tensor v, Tensor? handle, float scale, int compensate) -> (Tensor, Tensor)", _forward,
                lambda q, k, v, handle, scale, compensate: (torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)), "CPU")
attend_backward = define("attend_backward(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? handle, "
                         "float scale, int compensate) -> (Tensor, Tensor, Tensor)", _backward,
                         lambda do, dlse, q, k, v, *rest: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)), "CPU")


add_gradients("attend", attend, attend_backward)


def sparse_attention(q: Tensor, k: Tensor, v: Tensor, selection: Union[Selection, Tensor, None] = None,
                     scale: Optional[float] = None, return_lse: bool = False,
                     compensate: int = 0, *, deterministic: bool = True, backend: Optional[str] = None,
                     workspace: int = WORKSPACE) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """softmax(scale q k^T, restricted to the selection) v, exactly, with gradients; without a selection dense attention.

    q: (batch, heads, queries, head_dim), k, v: (batch, heads, keys, head_dim), all float32, bfloat16 or float16 on the
    CPU, of any strides; head_dim up to 256. selection: a tessera.Selection of that batch and those heads, or its handle.
    scale: None for 1 / sqrt(head_dim). compensate: virtual keys that stand for those a list leaves out, as of
    tessera.attention.

    Returns o of the shape and dtype of q; with return_lse (o, lse), lse float32 (batch, heads, queries), natural log; a
    query without keys has o = 0 and lse = -inf. Both have gradients. Computed in fp32; the backward pass of bf16 and fp16
    takes o before it was rounded.

    On GPUs: bfloat16 or float16, head_dim 64 or 128, a selection (or the handle that select returned), no compensate; gradients
    are rounded once. backend: "c", the kernels of libtessera_gpu, "triton", or None for the first that serves the device; the log
    says which and why. deterministic: the same bits on every run, with a workspace of at most so many bytes (0: of any size) for
    backward; without it, dk and dv are added by atomics. docs/gpu.md: not run on a GPU by us.

    >>> import torch, tessera.torch
    >>> q = torch.randn(1, 2, 100, 12, requires_grad=True)
    >>> o = tessera.torch.sparse_attention(q, q, q)
    >>> o.sum().backward()
    >>> q.grad.shape
    torch.Size([1, 2, 100, 12])
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"{name} is a {type(tensor).__name__}, must be a torch.Tensor; tessera.attention takes NumPy arrays")
    if scale is not None and not 0.0 < number("scale", scale) < math.inf:
        raise ArgumentError(f"scale is {scale}, must be positive and finite, or None for 1 / sqrt(head_dim)")
    if compensate.__class__ is not int:
        compensate = integer("compensate", compensate, 0, COMPENSATE_MAX)
    if backend is not None:
        check_backend(backend)
    if q.device.type == "cuda" or backend is not None:
        o, lse = attend_gpu(q, k, v, selection, 1 / math.sqrt(q.shape[-1]) if scale is None else scale, compensate, deterministic, workspace,
                            backend)
        return (o, lse) if return_lse else o
    if q.device.type != "cpu":
        raise ArgumentError(f"q is on {q.device}, must be on the CPU or on a GPU; tessera.torch.to_flex has a selection for FlexAttention there")
    dtype = q.dtype
    if dtype in (torch.bfloat16, torch.float16):
        _check_shapes(q, k, v)
        q, k, v = q.float(), k.float(), v.float()
    if isinstance(selection, Selection):
        selection = handle(selection)
    elif selection is not None and not isinstance(selection, Tensor):
        raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection, its handle or None")
    o, lse = attend(q, k, v, selection, 1 / math.sqrt(q.shape[-1]) if scale is None else scale, compensate)
    if o.dtype != dtype:
        o = o.to(dtype)
    return (o, lse) if return_lse else o
