# SPDX-License-Identifier: Apache-2.0
"""_operator.py - attention over a selection as an operator of PyTorch, with gradients.

    torch.ops.tessera.attend(q, k, v, handle, scale, compensate) -> (o, lse)

A selection goes in as a tensor of one number, handle(selection), whose storage owns the selection: it lives as long as
any tensor over that storage does, so until backward, and a compiled graph takes another selection without compiling
again. Inside, the number is looked up among the selections that live.

The kernels compute in fp32 on CPUs. Tensors of bf16 and fp16 are widened on the way in and rounded on the way out;
head_dim is padded with zeros to a multiple of 8, which changes neither scores nor outputs.
"""
import itertools
import math
import threading
import weakref
from typing import Optional, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .._attention import attention_object
from .._lib import NULL, ArgumentError, ArgumentTypeError, check, ffi, lib
from .._selection import Selection

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HEAD_DIM_MAX = 256

# ---- handles ---------------------------------------------------------------------------------------------------------

_numbers = weakref.WeakKeyDictionary()  # selection -> number
_selections = weakref.WeakValueDictionary()  # number -> selection
_next_number = itertools.count(1)


class _Owner(np.ndarray):
    """The array of a handle; its attribute keeps the selection, and the tensor's storage keeps the array."""


@torch.compiler.disable
def handle(selection: Optional[Selection]) -> Optional[Tensor]:
    """The selection as the operator takes it: an int64 tensor of one element that owns it. None gives None: dense.

    A copy of the tensor (clone, to) has the number but does not own the selection.

    >>> import numpy as np, torch, tessera, tessera.torch
    >>> s = tessera.Selection.from_mask(np.eye(2, dtype=bool)[None], 16, 16, 32)
    >>> q = torch.ones(1, 1, 32, 8)
    >>> o, lse = torch.ops.tessera.attend(q, q, q, tessera.torch.handle(s), 8 ** -0.5, False)
    >>> o.shape, lse.shape
    (torch.Size([1, 1, 32, 8]), torch.Size([1, 1, 32]))
    """
    if selection is None:
        return None
    if not isinstance(selection, Selection):
        raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection or None")
    number = _numbers.get(selection)
    if number is None:
        number = _numbers.setdefault(selection, next(_next_number))
        _selections[number] = selection
    array = np.array([number], np.int64).view(_Owner)
    array.selection = selection
    return torch.from_numpy(array)


def selection_of(handle: Optional[Tensor]) -> Optional[Selection]:
    """The selection of a handle; None for None and for the number 0, which both mean dense attention."""
    number = 0 if handle is None else handle.item()
    if number == 0:
        return None
    selection = _selections.get(number)
    if selection is None:
        raise ArgumentError("handle is of a selection that no longer exists: keep the tensor that tessera.torch.handle "
                            "returned, for a copy of it does not own the selection")
    return selection


# ---- the operator ----------------------------------------------------------------------------------------------------

class _Views(threading.local):
    def __init__(self):
        self.views = [ffi.new("tess_view *") for _ in range(8)]
        self.saved = ffi.new("tess_attn_saved *")


_kept = _Views()


def _view(i: int, tensor: Tensor):
    """The thread's view number i over a tensor."""
    view = _kept.views[i]
    view.data = ffi.cast("void *", tensor.data_ptr())
    view.stride_b, view.stride_h, view.stride_s, _ = tensor.stride()
    return view


def _floats(tensor):
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


def _object(q, k, head_dim, scale, compensate):
    batch, heads, seq_q, _ = q.shape
    return attention_object(batch, heads, seq_q, k.shape[2], head_dim, scale, compensate, torch.get_num_threads())


def _result(like: Tensor, pad: int) -> Tuple[Tensor, Tensor]:
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


@torch.library.custom_op("tessera::attend", mutates_args=(), device_types="cpu")
def attend(q: Tensor, k: Tensor, v: Tensor, handle: Optional[Tensor], scale: float, compensate: bool) -> Tuple[Tensor, Tensor]:
    _check_shapes(q, k, v)
    selection = selection_of(handle)
    head_dim = q.shape[3]
    pad = -head_dim % 8
    o, buffer = _result(q, pad)
    q, k, v = _as_kernel(q, pad), _as_kernel(k, pad), _as_kernel(v, pad)
    lse = torch.empty(q.shape[:3], dtype=torch.float32)
    check(lib.tess_attn_forward(_object(q, k, head_dim + pad, scale, compensate), NULL if selection is None else selection._p,
                                _view(0, q), _view(1, k), _view(2, v), _view(3, buffer), _floats(lse)))
    return _finish(o, buffer), lse


@attend.register_fake
def _(q, k, v, handle, scale, compensate):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("tessera::attend_backward", mutates_args=(), device_types="cpu")
def attend_backward(do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
                    handle: Optional[Tensor], scale: float, compensate: bool) -> Tuple[Tensor, Tensor, Tensor]:
    selection = selection_of(handle)
    head_dim = q.shape[3]
    pad = -head_dim % 8
    results = [_result(x, pad) for x in (q, k, v)]
    do, q, k, v, o = (_as_kernel(x, pad) for x in (do, q, k, v, o))
    lse = lse.contiguous()
    dlse = None if dlse is None else dlse.float().contiguous()
    saved = _kept.saved
    saved.q, saved.k, saved.v, saved.o = _view(0, q), _view(1, k), _view(2, v), _view(3, o)
    saved.lse = _floats(lse)
    check(lib.tess_attn_backward(_object(q, k, head_dim + pad, scale, compensate), NULL if selection is None else selection._p,
                                 saved, _view(4, do), NULL if dlse is None else _floats(dlse),
                                 *(_view(5 + i, buffer) for i, (_, buffer) in enumerate(results))))
    return tuple(_finish(*x) for x in results)


@attend_backward.register_fake
def _(do, dlse, q, k, v, o, lse, handle, scale, compensate):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _setup_context(ctx, inputs, output):
    q, k, v, number, ctx.scale, ctx.compensate = inputs
    ctx.set_materialize_grads(False)  # else lse always has a gradient
    ctx.save_for_backward(q, k, v, *output, number)


def _backward(ctx, do, dlse):
    if do is None and dlse is None:
        return None, None, None, None, None, None
    q, k, v, o, lse, number = ctx.saved_tensors
    do = torch.zeros_like(o) if do is None else do
    return (*attend_backward(do, dlse, q, k, v, o, lse, number, ctx.scale, ctx.compensate), None, None, None)


attend.register_autograd(_backward, setup_context=_setup_context)


def sparse_attention(q: Tensor, k: Tensor, v: Tensor, selection: Union[Selection, Tensor, None] = None,
                     scale: Optional[float] = None, return_lse: bool = False,
                     compensate: bool = False) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """softmax(scale q k^T, restricted to the selection) v, exactly, with gradients; without a selection dense attention.

    q: (batch, heads, queries, head_dim), k, v: (batch, heads, keys, head_dim), all float32, bfloat16 or float16 on the
    CPU, of any strides; head_dim up to 256. selection: a tessera.Selection of that batch and those heads, or its handle.
    scale: None for 1 / sqrt(head_dim). compensate: a virtual key stands for the keys that a list leaves out.

    Returns o of the shape and dtype of q; with return_lse (o, lse), lse float32 (batch, heads, queries), natural log; a
    query without keys has o = 0 and lse = -inf. Both have gradients. Computed in fp32; the backward pass of bf16 and fp16
    takes o before it was rounded. On GPUs use to_flex.

    >>> import torch, tessera.torch
    >>> q = torch.randn(1, 2, 100, 12, requires_grad=True)
    >>> o = tessera.torch.sparse_attention(q, q, q)
    >>> o.sum().backward()
    >>> q.grad.shape
    torch.Size([1, 2, 100, 12])
    """
    if q.device.type != "cpu":
        raise ArgumentError(f"q is on {q.device}, must be on the CPU; tessera.torch.to_flex has a selection for FlexAttention there")
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
