# SPDX-License-Identifier: Apache-2.0
"""_gpu_triton.py - the backend "triton": the kernels of _triton_kernels.py, their settings and launches.

Lists are tensors. Backward is ordered by a workspace of rows, done in rounds of lists that fit into its budget: the sum
of each key goes on from one round to the next, so that every budget gives the same bits. Units whose size is no power
of two, or that have bounds, become keys.
"""
from __future__ import annotations

import contextlib
import functools
import math
import weakref
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np
import torch
from torch import Tensor

from .._lib import ArgumentError
from .._selection import Selection

try:
    import triton  # type: ignore[import-untyped,import-not-found]

    from . import _triton_kernels as kernels
    _missing = None
except ImportError as error:
    _missing = f"Triton cannot be imported: {error}"

_DTYPES = (None, torch.bfloat16, torch.float16)  # None: a selection


class Settings(NamedTuple):
    """Tiles of a kernel and how it is compiled; tests compile all of them, and none spills registers."""
    rows: int     # queries, BM
    columns: int  # keys, BN
    warps: int
    stages: int


def _tile(group: int, most: int) -> int:
    """The smallest power of two from 16 in which a group fits, at most `most`."""
    return min(max(16, 1 << (group - 1).bit_length()), most)


def forward_settings(head_dim: int, group: int, hip: bool) -> Settings:
    if hip:
        return Settings(_tile(group, 64), 32, 4, 1)
    rows = _tile(group, 128)
    return Settings(rows, 64, 8 if rows == 128 else 4, 2)


def backward_settings(head_dim: int, group: int, hip: bool) -> Settings:
    rows = 64 if group > 32 else 32
    return Settings(rows, 32, 8 if not hip and (head_dim == 128 or rows == 64) else 4, 1)


SELECT = Settings(16, 64, 4, 2)  # 16 groups, 64 units of a step
SUM = Settings(16, 0, 4, 1)      # 16 keys


class DeviceLists:
    """Lists on a device, as _handle.py owns them: tensors, and what the host knows of them."""
    backend = "triton"

    def __init__(self, device: torch.device, shape: tuple[int, int, int, int], tokens: tuple[int, int],
                 bounds: np.ndarray, offsets: np.ndarray, indices: Tensor, shift: int):
        self.device, self.shape, self.tokens, self.shift = device, shape, tokens, shift
        self.group = int(np.diff(bounds).max(initial=0))
        self.offsets = offsets  # (lists + 1)
        self.device_bounds = torch.from_numpy(bounds.astype(np.int32)).to(device)
        self.device_offsets = torch.from_numpy(offsets).to(device)
        self.indices = indices
        self._by_key: Optional[tuple[Tensor, Tensor]] = None

    def by_key(self) -> tuple[Tensor, Tensor]:
        """(first, place): entries of unit u of sample and head i are place[first[i n_k + u]] .. ascending."""
        if self._by_key is None:
            batch, heads, n_q, n_k = self.shape
            lists = torch.arange(batch * heads * n_q, device=self.device)
            lists = lists.repeat_interleave(self.device_offsets.diff(), output_size=len(self.indices))
            key = lists // max(n_q, 1) * n_k + self.indices
            key, place = torch.sort(key, stable=True)
            self._by_key = torch.searchsorted(key, torch.arange(batch * heads * n_k + 1, device=self.device)), place
        return self._by_key


_uploaded: weakref.WeakKeyDictionary[Selection, dict[torch.device, DeviceLists]] = weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=None)
def interpreted() -> bool:
    """Whether the kernels run under Triton's interpreter: TRITON_INTERPRET=1 when they were imported."""
    return not isinstance(kernels.forward, triton.runtime.JITFunction)


def against(device: torch.device, dtype: Optional[torch.dtype]) -> Optional[str]:
    if _missing:
        return _missing
    if device.type == "cpu" and interpreted():
        # The interpreter's products of bfloat16 are wrong; those of float32, which spills on a device, are right.
        if dtype in (None, torch.float16, torch.float32):
            return None
        return f"q is of {dtype}, must be of float16 or float32 under Triton's interpreter"
    if device.type != "cuda":
        return f"q is on {device}, its kernels run on GPUs, and on a CPU under its interpreter (TRITON_INTERPRET=1)"
    if dtype not in _DTYPES:
        return f"q is of {dtype}, must be of bfloat16 or float16"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if not torch.version.hip and torch.cuda.get_device_capability(device) < (8, 0):
        return "compute capability %d.%d, must be 8.0 or later" % torch.cuda.get_device_capability(device)
    return None


def about(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreted"
    return f"{name}, Triton {triton.__version__}"


def doubt(device: torch.device) -> str:
    return "not checked on this device"  # `tessera gpu check` runs the other backend


def _rows_of(offsets: np.ndarray, indices: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists of units as lists of keys."""
    sizes = np.diff(bounds)[indices]
    ends = np.concatenate(([0], np.cumsum(sizes)))
    rows = np.arange(ends[-1]) + np.repeat(bounds[indices] - ends[:-1], sizes)
    return ends[offsets], rows.astype(np.int32)


def upload(selection: Selection, device: torch.device) -> DeviceLists:
    """The lists of a selection on the device, copied when they are first asked for."""
    devices = _uploaded.setdefault(selection, {})
    if device not in devices:
        offsets, indices = selection.lists()
        bounds_q, bounds_k = selection.bounds
        batch, heads, n_q, n_k = selection.shape
        unit, shift = selection.block[1], 0
        if unit and unit & (unit - 1) == 0:
            shift = unit.bit_length() - 1
        else:
            offsets, indices = _rows_of(offsets, indices, bounds_k)
            n_k = selection.tokens[1]
        devices[device] = DeviceLists(device, (batch, heads, n_q, n_k), selection.tokens, bounds_q, offsets,
                                      torch.from_numpy(indices).to(device), shift)
    return devices[device]


def _launch(kernel: Any, programs: int, settings: Settings, device: torch.device, *given: Any,
            **constants: Any) -> None:
    if programs > 2**31 - 1:
        raise ArgumentError(f"selection would take {programs} programs of a kernel, at most {2**31 - 1}")
    if programs > 0:
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            kernel[(programs,)](*given, num_warps=settings.warps, num_stages=settings.stages, **constants)


def _contiguous(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def forward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, lists: DeviceLists, scale: float) -> None:
    batch, heads, seq_q, head_dim = q.shape
    n_q = lists.shape[2]
    chosen = forward_settings(head_dim, lists.group, torch.version.hip is not None)
    tiles = -(-lists.group // chosen.rows)
    q, k, v = _contiguous(q), _contiguous(k), _contiguous(v)
    into = o if o.stride(3) == 1 else torch.empty(o.shape, dtype=o.dtype, device=o.device)
    _launch(kernels.forward, batch * heads * n_q * tiles, chosen, q.device, q, k, v, into, lse, lists.device_bounds,
            lists.device_offsets, lists.indices, heads, seq_q, k.shape[2], n_q, tiles, lists.shift,
            scale * math.log2(math.e), *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *into.stride()[:3],
            D=head_dim, BM=chosen.rows, BN=chosen.columns)
    if into is not o:
        o.copy_(into)


def _rounds(offsets: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Ranges of lists whose entries are at most `most` together."""
    rounds, begin, lists = [], 0, len(offsets) - 1
    while begin < lists:
        end = int(np.searchsorted(offsets, offsets[begin] + most, side="right")) - 1
        rounds.append((begin, end))
        begin = end
    return rounds


def backward(do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
             sums: Sequence[Tensor], lists: DeviceLists, scale: float, deterministic: bool, workspace: int) -> None:
    batch, heads, seq_q, head_dim = q.shape
    seq_k = k.shape[2]
    n_q, n_k = lists.shape[2:]
    chosen = backward_settings(head_dim, lists.group, torch.version.hip is not None)
    tiles = -(-lists.group // chosen.rows)
    do, q, k, v, o = (_contiguous(x) for x in (do, q, k, v, o))
    dq, dk, dv = sums
    dk.zero_()
    dv.zero_()
    dlse = torch.zeros_like(lse) if dlse is None else dlse
    strides = [n for x in (q, k, v, o, do) for n in x.stride()[:3]]

    def enqueue(begin: int, end: int, to_k: Tensor, to_v: Tensor) -> None:
        _launch(kernels.backward, (end - begin) * tiles, chosen, q.device, q, k, v, o, do, lse, dlse, dq, to_k, to_v,
                lists.device_bounds, lists.device_offsets, lists.indices, heads, seq_q, seq_k, n_q, tiles, lists.shift,
                scale, begin, int(lists.offsets[begin]), *strides, D=head_dim, BM=chosen.rows, BN=chosen.columns,
                ORDERED=deterministic)

    every = len(lists.offsets) - 1
    if not deterministic:
        enqueue(0, every, dk, dv)
        return
    longest = int(np.diff(lists.offsets).max(initial=0))
    row = (tiles << lists.shift) * head_dim * 4  # bytes of an entry in each of both workspaces
    most = workspace // (2 * row) if workspace and row else max(int(lists.offsets[-1]), 1)
    if most < longest:
        raise ArgumentError(f"workspace is {workspace}, must be at least {longest * 2 * row} for these lists")
    size = min(most, int(lists.offsets[-1])) * row // 4
    row_k, row_v = (torch.empty(size, dtype=torch.float32, device=q.device) for _ in range(2))
    first, place = lists.by_key()
    blocks = -(-seq_k // SUM.rows)
    for begin, end in _rounds(lists.offsets, most):
        enqueue(begin, end, row_k, row_v)
        _launch(kernels.sum_rows, batch * heads * blocks, SUM, q.device, row_k, row_v, dk, dv, first, place, seq_k, n_k,
                tiles, lists.shift, int(lists.offsets[begin]), int(lists.offsets[end]), blocks, D=head_dim, BK=SUM.rows)


def select(q: Tensor, k: Tensor, keep: np.ndarray, shape: Any, bounds: Optional[np.ndarray]) -> DeviceLists:
    batch, heads, n_q, n_k, rank = shape.batch, shape.heads, shape.n_q, shape.n_k, q.shape[3]
    if bounds is None:
        bounds = np.minimum(np.arange(n_q + 1) * shape.group, shape.tokens_q)
    offsets = np.concatenate(([0], np.cumsum(np.repeat(keep, n_q), dtype=np.int64)))
    indices = torch.empty(int(offsets[-1]), dtype=torch.int32, device=q.device)
    lists = DeviceLists(q.device, (batch, heads, n_q, n_k), (shape.tokens_q, shape.tokens_k), bounds, offsets, indices,
                        shape.unit.bit_length() - 1)
    q, k = _contiguous(q), _contiguous(k)
    blocks = -(-n_q // SELECT.rows)
    _launch(kernels.select, batch * heads * blocks if n_k else 0, SELECT, q.device, q, k,
            torch.from_numpy(keep).to(q.device), lists.device_offsets, indices, heads, n_q, n_k, rank, *q.stride()[:3],
            *k.stride()[:3], blocks, R=max(16, 1 << (rank - 1).bit_length()), BN=SELECT.columns)
    return lists
