# SPDX-License-Identifier: Apache-2.0
"""_gpu_operator.py - attention over a selection, and the selection itself, on GPUs: operators of PyTorch.

    torch.ops.tessera.attend_gpu(q, k, v, handle, scale, deterministic, workspace, backend) -> (o, lse)
    torch.ops.tessera.select_gpu(q, k, keep, q_block, k_block, seq_q, seq_k, backend) -> handle

A backend is a module: _gpu_c.py, the kernels of libtessera_gpu; _gpu_triton.py, kernels in Triton. Which one runs is
decided when an operator runs: the one that was named, else the first that serves this device, type and head_dim. The
first call of each device and kind says on the log which one runs and why; one that does not serve is a sentence.
Nothing becomes dense.

Tensors on a CPU come here if a backend is named: Triton's kernels run there under its interpreter.
"""
from __future__ import annotations

import functools
import importlib
import logging
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor

from .._lib import ArgumentError, ArgumentTypeError, UnsupportedError, integer, integers
from .._selection import TOKENS_MAX, Block, Selection, sel_shape
from ._gradients import add_gradients
from ._handle import find_selection, handle, owner_of
from ._library import define

BACKENDS = {"c": "libtessera_gpu", "triton": "Triton"}  # in the order in which they are tried
WORKSPACE = 1 << 30
HEAD_DIMS = (64, 128)
RANK_MAX = 64
_DENSE = "selection is None: dense attention on GPUs is torch.nn.functional.scaled_dot_product_attention"

log = logging.getLogger("tessera")


class Choice(NamedTuple):
    """Which backend runs attention on a device, and why."""
    backend: str
    reason: str


@functools.lru_cache(maxsize=None)
def _module(backend: str) -> Any:
    return importlib.import_module("._gpu_" + backend, __package__)  # Triton is imported where it is asked for


@functools.lru_cache(maxsize=None)
def _against(backend: str, device: torch.device, dtype: Optional[torch.dtype]) -> Optional[str]:
    """Why a backend does not serve attention on tensors of this device and type, or a selection (None), or None."""
    return _module(backend).against(device, dtype)


@functools.lru_cache(maxsize=None)
def choose(device: torch.device, dtype: Optional[torch.dtype], named: Optional[str]) -> Choice:
    """The backend for tensors of this device and type, or a selection (None); UnsupportedError: none, with the reason
    of each."""
    against = {name: _against(name, device, dtype) for name in ([named] if named else BACKENDS)}
    found = next((name for name, why in against.items() if why is None), None)
    if found is None:
        raise UnsupportedError("; ".join(f"backend {name} ({BACKENDS[name]}): {why}" for name, why in against.items()))
    before = "; ".join(f"not by {BACKENDS[name]}: {why}" for name, why in against.items()
                       if name != found and why is not None)
    because = "it was asked for" if named else before or "it is the first that serves this device"
    reason = f"{_module(found).about(device)}; {because}"
    what = "selection" if dtype is None else "attention of " + str(dtype).rpartition(".")[2]
    doubt = _module(found).doubt(device)
    log.log(logging.WARNING if doubt else logging.INFO, "tessera: %s on %s runs by %s (%s)%s", what, device,
            BACKENDS[found], reason, ": " + doubt if doubt else "")
    return Choice(found, reason)


def backend(device: Union[str, torch.device] = "cuda", dtype: torch.dtype = torch.bfloat16) -> Choice:
    """Which backend sparse_attention runs by on a device when none is named, and why: (backend, reason).

    UnsupportedError says why neither serves.
    """
    found = torch.device(device)
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)
    return choose(found, dtype, None)


# ---- attention -------------------------------------------------------------------------------------------------------

def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if q.dim() != 4:
        raise ArgumentError(f"q has the shape {tuple(q.shape)}, must be (batch, heads, tokens, head_dim)")
    batch, heads, _, head_dim = q.shape
    want = (batch, heads, k.shape[2] if k.dim() == 4 else 0, head_dim)
    for name, tensor in (("k", k), ("v", v)):
        if tensor.shape != want:
            raise ArgumentError(f"{name} has the shape {tuple(tensor.shape)}, "
                                f"must be ({batch}, {heads}, keys, {head_dim}), the same of k and v")
        if tensor.dtype != q.dtype:
            raise ArgumentTypeError(f"{name} is of {tensor.dtype}, must be of {q.dtype} as q is")
        if tensor.device != q.device:
            raise ArgumentError(f"{name} is on {tensor.device}, must be on {q.device} as q is")
    if head_dim not in HEAD_DIMS:
        raise UnsupportedError(f"q has a head_dim of {head_dim}, must be 64 or 128 on GPUs")


def _lists(found: str, handle: Tensor, q: Tensor, tokens_k: int) -> Any:
    """The lists of a handle on the device of q, in the form of this backend."""
    selection = find_selection(handle)
    if selection is None:
        raise ArgumentError(_DENSE)
    batch, heads, n_q, n_k = selection.shape
    have, want = (batch, heads, *selection.tokens), (*q.shape[:3], tokens_k)
    if have != want:
        raise ArgumentError("selection is of %d x %d heads with %d queries and %d keys, "
                            "must be of %d x %d with %d and %d" % (*have, *want))
    if isinstance(selection, Selection):
        return _module(found).upload(selection, q.device)
    if selection.device != q.device:
        raise ArgumentError(f"selection has lists on {selection.device}, must be on {q.device} as q is")
    if selection.backend != found:
        raise UnsupportedError(f"selection has lists made by backend {selection.backend}, attention runs by {found}: "
                               "name one backend for both")
    return selection


def _forward(q: Tensor, k: Tensor, v: Tensor, handle: Tensor, scale: float, deterministic: bool, workspace: int,
             backend: Optional[str]) -> tuple[Tensor, Tensor]:
    _check(q, k, v)
    found = choose(q.device, q.dtype, backend).backend
    lists = _lists(found, handle, q, k.shape[2])
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    _module(found).forward(q, k, v, o, lse, lists, scale)
    return o, lse


def _backward(do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
              handle: Tensor, scale: float, deterministic: bool, workspace: int,
              backend: Optional[str]) -> tuple[Tensor, Tensor, Tensor]:
    found = choose(q.device, q.dtype, backend).backend
    lists = _lists(found, handle, q, k.shape[2])
    do = do.to(q.dtype)
    dlse = None if dlse is None else dlse.float().contiguous()
    sums = [torch.empty(x.shape, dtype=torch.float32, device=x.device) for x in (q, k, v)]
    _module(found).backward(do, dlse, q, k, v, o, lse.contiguous(), sums, lists, scale, deterministic, workspace)
    dq, dk, dv = (torch.empty_like(x).copy_(s) for x, s in zip((q, k, v), sums))
    return dq, dk, dv


attend = define("attend_gpu(Tensor q, Tensor k, Tensor v, Tensor handle, float scale, bool deterministic, "
                "int workspace, str? backend) -> (Tensor, Tensor)", _forward,
                lambda q, k, v, *rest: (torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)))
attend_backward = define("attend_gpu_backward(Tensor do, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, "
                         "Tensor lse, Tensor handle, float scale, bool deterministic, int workspace, str? backend) "
                         "-> (Tensor, Tensor, Tensor)", _backward,
                         lambda do, dlse, *given: tuple(torch.empty_like(x) for x in given[:3]))
add_gradients("attend_gpu", attend, attend_backward)


def check_backend(name: Any) -> None:
    if name is not None and name not in BACKENDS:
        raise ArgumentError(f"backend is {name!r}, must be \"c\", \"triton\" or None")


def attend_gpu(q: Tensor, k: Tensor, v: Tensor, selection: Union[Selection, Tensor, None], scale: float,
               compensate: int, deterministic: bool, workspace: int, named: Optional[str]) -> tuple[Tensor, Tensor]:
    """What tessera.torch.sparse_attention does on GPUs."""
    if compensate:
        raise UnsupportedError(f"compensate is {compensate}, must be 0 on GPUs: there are no virtual keys")
    if workspace.__class__ is not int or workspace < 0:
        workspace = integer("workspace", workspace, 0, 2**62)
    if isinstance(selection, Selection):
        selection = handle(selection)
    if selection is None:
        raise ArgumentError(_DENSE)
    if not isinstance(selection, Tensor):
        raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection or its handle")
    _check(q, k, v)  # here too: tensors of several devices would not come to the operator's kernel
    o, lse = attend(q, k, v, selection, scale, bool(deterministic), workspace, named)
    return o, lse


# ---- the selection ---------------------------------------------------------------------------------------------------

def _select(q: Tensor, k: Tensor, keep: Sequence[int], q_block: Sequence[int], k_block: int, seq_q: int, seq_k: int,
            backend: Optional[str]) -> Tensor:
    for name, tensor in (("q", q), ("k", k)):
        if tensor.dim() != 4 or tensor.dtype != torch.float32:
            raise ArgumentTypeError(f"{name} is of {tensor.dtype} with {tensor.dim()} dimensions, "
                                    "must be of float32: (batch, heads, blocks, rank)")
    if k.device != q.device:
        raise ArgumentError(f"k is on {k.device}, must be on {q.device} as q is")
    batch, heads, _, rank = q.shape
    if k_block < 1 or k_block & (k_block - 1):
        raise UnsupportedError(f"k_block is {k_block}, must be a power of two on GPUs")
    shape, bounds = sel_shape(batch, heads, seq_q, seq_k, q_block[0] if len(q_block) == 1 else np.array(q_block),
                              k_block)
    integer("rank", rank, 1, RANK_MAX)
    for name, tensor, blocks in (("q", q, shape.n_q), ("k", k, shape.n_k)):
        if tensor.shape != (batch, heads, blocks, rank):
            raise ArgumentError(f"{name} has the shape {tuple(tensor.shape)}, "
                                f"must be ({batch}, {heads}, {blocks}, {rank})")
    kept = np.array(keep, np.int64)
    if len(kept) == 1:
        kept = np.repeat(kept, batch * heads)
    if len(kept) != batch * heads:
        raise ArgumentError(f"keep has {len(kept)} numbers, must have 1 or {batch * heads}: batch * heads")
    for i, number in enumerate(kept.tolist()):
        if not 0 <= number <= shape.n_k:
            raise ArgumentError(f"keep[{i}] is {number}, must be 0..{shape.n_k}")
    found = choose(q.device, None, backend).backend
    return owner_of(_module(found).select(q, k, kept.astype(np.int32), shape, bounds[0]))


select_op = define("select_gpu(Tensor q, Tensor k, int[] keep, int[] q_block, int k_block, int seq_q, int seq_k, "
                   "str? backend) -> Tensor", _select, lambda *given: torch.empty(1, dtype=torch.int64, device="cpu"))


def select(q: Tensor, k: Tensor, keep: Union[int, Sequence[int], np.ndarray, Tensor], q_block: Block, k_block: int = 1,
           *, seq_q: Optional[int] = None, seq_k: Optional[int] = None, backend: Optional[str] = None) -> Tensor:
    """The handle of a selection made on a GPU: for each query block, its key blocks of the largest scores q . k.

    q: (batch, heads, query blocks, rank), k: (batch, heads, key blocks, rank): what a predictor gives, float32, rank up
    to 64; no gradient. keep: how many key blocks each list has, one number or (batch, heads), on the host. q_block:
    tokens of a query block, or the bounds of all; k_block: tokens of a key block, a power of two. seq_q, seq_k: tokens;
    without them all blocks are whole. Lists ascend; equal scores go to the lowest index, and NaN and infinite scores
    are below all others. The lists stay on the device: attention by the same backend takes the handle.
    """
    check_backend(backend)
    for name, tensor in (("q", q), ("k", k)):
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"{name} is a {type(tensor).__name__}, must be a torch.Tensor")
    if q.device.type != "cuda" and backend is None:
        raise ArgumentError(f"q is on {q.device}, must be on a GPU; tessera.predictor selects on CPUs")
    if isinstance(keep, (Tensor, np.ndarray)):
        keep = keep.tolist()
    rows = keep if isinstance(keep, (list, tuple)) else [keep]
    kept = [n for row in rows for n in (row if isinstance(row, (list, tuple)) else [row])]
    kept = [integer("keep", n, -TOKENS_MAX, TOKENS_MAX) for n in kept]
    blocks = ([integer("q_block", q_block, 1, TOKENS_MAX)] if isinstance(q_block, int)
              else integers("q_block", q_block).tolist())
    if seq_q is None:
        seq_q = q.shape[-2] * blocks[0] if len(blocks) == 1 else blocks[-1]
    k_block = integer("k_block", k_block, 1, TOKENS_MAX)
    made: Tensor = select_op(q, k, kept, blocks, k_block, seq_q, k.shape[-2] * k_block if seq_k is None else seq_k,
                             backend)
    return made
