# SPDX-License-Identifier: Apache-2.0
"""_gpu_c.py - the backend "c": kernels of libtessera_gpu over pointers of tensors, on PyTorch's current stream.

Calls enqueue and return. Tensors whose rows the kernels do not take (16-byte aligned, contiguous elements, strides
multiples of 16 bytes) are copied. Lists are made on one stream: a call on another one waits for the device once.
"""
from __future__ import annotations

import weakref
from typing import Any, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _gpu
from .._lib import UnsupportedError
from .._selection import Selection

_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
_ALIGN = 256  # of a workspace


class DeviceLists:
    """Lists of libtessera_gpu, as _handle.py owns them."""
    backend = "c"

    def __init__(self, lists: _gpu.Lists, device: torch.device, shape: tuple[int, int, int, int],
                 tokens: tuple[int, int]):
        self.lists, self.device, self.shape, self.tokens = lists, device, shape, tokens


_uploaded: weakref.WeakKeyDictionary[Selection, dict[torch.device, DeviceLists]] = weakref.WeakKeyDictionary()


def against(device: torch.device, dtype: Optional[torch.dtype]) -> Optional[str]:
    if torch.version.hip:
        return "its kernels are for NVIDIA's GPUs, this PyTorch is for AMD's"
    if dtype not in (None, torch.bfloat16, torch.float16):
        return f"q is of {dtype}, must be of bfloat16 or float16"
    try:
        _gpu.device(device.index or 0)
    except UnsupportedError as error:
        return str(error)
    return None


def about(device: torch.device) -> str:
    gpu = _gpu.device(device.index or 0)
    return f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}, code for {gpu.image}"


def doubt(device: torch.device) -> str:
    return _gpu.device(device.index or 0).doubt


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _fits(x: Tensor) -> bool:
    even = 16 // x.element_size()
    return x.stride(3) == 1 and not any(n % even for n in x.stride()[:3]) and x.data_ptr() % 16 == 0


def _rows(x: Tensor) -> _gpu.Rows:
    return _gpu.Rows(x.data_ptr(), _DTYPES[x.dtype], *x.stride()[:3])


def _as_rows(x: Tensor) -> Tensor:
    return x if _fits(x) else x.clone(memory_format=torch.contiguous_format)


def upload(selection: Selection, device: torch.device) -> DeviceLists:
    """The lists of a selection on the device, copied when they are first asked for."""
    devices = _uploaded.setdefault(selection, {})
    if device not in devices:
        lists = _gpu.device(device.index or 0).upload(selection, _stream(device))
        devices[device] = DeviceLists(lists, device, selection.shape, selection.tokens)
    return devices[device]


def _on_stream(lists: DeviceLists) -> tuple[_gpu.Device, _gpu.Lists, int]:
    stream = _stream(lists.device)
    if stream != lists.lists.stream:
        torch.cuda.synchronize(lists.device)
        lists.lists.stream = stream
    return lists.lists.device, lists.lists, stream


def _shape(q: Tensor, k: Tensor, scale: float, deterministic: bool = True) -> _gpu.Shape:
    batch, heads, seq_q, head_dim = q.shape
    return _gpu.Shape(batch, heads, seq_q, k.shape[2], head_dim, scale, not deterministic)


def forward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, lists: DeviceLists, scale: float) -> None:
    device, made, stream = _on_stream(lists)
    q, k, v = _as_rows(q), _as_rows(k), _as_rows(v)
    into = o if _fits(o) else torch.empty(o.shape, dtype=o.dtype, device=o.device)
    device.forward(_shape(q, k, scale), made, _rows(q), _rows(k), _rows(v), _rows(into), lse.data_ptr(), stream)
    if into is not o:
        o.copy_(into)


def backward(do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
             sums: Sequence[Tensor], lists: DeviceLists, scale: float, deterministic: bool, workspace: int) -> None:
    device, made, stream = _on_stream(lists)
    do, q, k, v, o = (_as_rows(x) for x in (do, q, k, v, o))
    shape = _shape(q, k, scale, deterministic)
    size = device.workspace(shape, made, workspace)
    work = torch.empty(size + _ALIGN, dtype=torch.uint8, device=q.device)
    begin = work.data_ptr() + -work.data_ptr() % _ALIGN
    device.backward(shape, made, (_rows(q), _rows(k), _rows(v), _rows(o)), lse.data_ptr(), _rows(do),
                    None if dlse is None else dlse.data_ptr(), (_rows(sums[0]), _rows(sums[1]), _rows(sums[2])), begin,
                    size, stream)


def select(q: Tensor, k: Tensor, keep: np.ndarray, shape: Any, bounds: Optional[np.ndarray]) -> DeviceLists:
    rank = q.shape[3]
    q, k = (_as_rows(F.pad(x, (0, -rank % 4))) for x in (q, k))
    device = _gpu.device(q.device.index or 0)
    lists = device.select(shape, _rows(q), _rows(k), rank, keep, _stream(q.device))
    return DeviceLists(lists, q.device, (shape.batch, shape.heads, shape.n_q, shape.n_k),
                       (shape.tokens_q, shape.tokens_k))
