# SPDX-License-Identifier: Apache-2.0
"""_flex.py - selections as FlexAttention takes them.

FlexAttention multiplies full blocks without asking for a mask, and blocks listed as partial by calling mask_mod for each
pair of tokens. All blocks of a selection are full. mask_mod is there all the same and looks the block up: uncompiled,
FlexAttention ignores the lists and goes by mask_mod alone.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import torch
from torch import Tensor

from .._lib import ArgumentError, ArgumentTypeError, integer
from .._selection import Selection

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Device = Union[str, torch.device]


def _options(block: Sequence[int], device: Device) -> dict[str, Any]:
    """Kernel options: the tiles of the GPU's kernels must divide the blocks."""
    if torch.device(device).type == "cpu" or min(block) >= 128:
        return {}
    tile_q, tile_k = (next(t for t in (128, 64, 32, 16) if t <= b and b % t == 0) for b in block)
    return {"BLOCK_M": tile_q, "BLOCK_N": tile_k, "BLOCK_M1": tile_k, "BLOCK_N1": tile_q, "BLOCK_M2": tile_q, "BLOCK_N2": tile_k}


def _check_block(block: Sequence[int], device: Device) -> None:
    if torch.device(device).type != "cpu" and any(b % 16 for b in block):
        raise ArgumentError(f"selection has blocks of {block[0]} x {block[1]} tokens, must have multiples of 16 for FlexAttention "
                            "on a GPU: selection.coarsen makes such")


def _block_of(selection: Selection) -> tuple[int, int]:
    """(q_block, k_block) of a selection whose blocks have one size on each side."""
    if not isinstance(selection, Selection):
        raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection")
    block = []
    for name, size, bounds in zip(("query", "key"), selection.block, selection.bounds):
        if size is None:
            sizes = set((bounds[1:] - bounds[:-1])[:-1].tolist())
            size = int(bounds[1]) if len(bounds) > 1 else 1
            if len(sizes) > 1 or len(bounds) > 2 and bounds[-1] - bounds[-2] > size:
                raise ArgumentError(f"selection has {name} blocks of several sizes, FlexAttention takes one size, a shorter block "
                                    "at the end: selection.coarsen makes such")
        block.append(size)
    return block[0], block[1]


def _lists(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Counts and indices, selected ones first, ascending, full width."""
    return mask.sum(-1, dtype=torch.int32), torch.argsort(~mask, dim=-1, stable=True).to(torch.int32)


def _block_mask(mask: Tensor, block: tuple[int, int], seq: tuple[int, int], train: bool) -> BlockMask:
    """A BlockMask over a boolean tensor (batch, heads, query blocks, key blocks) that it keeps looking into."""
    counts, indices = _lists(mask)
    batch, heads = mask.shape[:2]

    def selected(b, h, q, k):
        return mask[b if batch > 1 else 0, h if heads > 1 else 0, q // block[0], k // block[1]]

    from torch.nn.attention.flex_attention import BlockMask  # not above: it takes 0.5 s
    more: dict[str, Any] = {"compute_q_blocks": train} if "compute_q_blocks" in inspect.signature(BlockMask.from_kv_blocks).parameters else {}
    # Compiled for CPUs the C++ does not build if one tensor is two arguments: hence a copy of the indices.
    return BlockMask.from_kv_blocks(torch.zeros_like(counts), indices.clone(), counts, indices, BLOCK_SIZE=block,
                                    mask_mod=selected, seq_lengths=seq, **more)


def to_flex(selection: Selection, device: Device = "cpu", train: bool = False) -> tuple[BlockMask, dict[str, Any]]:
    """(BlockMask, kernel_options) for flex_attention(q, k, v, block_mask=..., kernel_options=...).

    train: also the lists of query blocks of each key block, which the backward pass needs. Blocks must be of one size
    on each side, on a GPU of a multiple of 16. A selection of batch 1 or of one head serves any batch, any heads.

    >>> import numpy as np, torch, tessera, tessera.torch
    >>> from torch.nn.attention.flex_attention import flex_attention
    >>> s = tessera.Selection.from_mask(np.eye(4, dtype=bool)[None], 64, 64, 256)
    >>> block_mask, options = tessera.torch.to_flex(s, "cpu")
    >>> q = torch.ones(1, 1, 256, 16)
    >>> flex_attention(q, q, q, block_mask=block_mask, kernel_options=options).shape
    torch.Size([1, 1, 256, 16])
    """
    block = _block_of(selection)
    _check_block(block, device)
    mask = torch.from_numpy(selection.to_mask()).to(device)
    return _block_mask(mask, block, selection.tokens, train), _options(block, device)


class FlexMask:
    """One BlockMask whose contents change: a compiled flex_attention is compiled once for a shape.

    shape: (batch, heads, queries, keys) in tokens, or (batch, heads, tokens). block: tokens of a block, one number or
    (q_block, k_block). update(selection) copies a selection of that shape into the buffers of `block_mask` and returns
    (block_mask, kernel_options). Before the first update nothing is selected.
    """

    def __init__(self, shape: Sequence[int], block: Union[int, Sequence[int]], device: Device = "cpu", train: bool = False):
        shape = tuple(shape)
        if len(shape) not in (3, 4):
            raise ArgumentError(f"shape is {shape}, must be (batch, heads, queries, keys) or (batch, heads, tokens)")
        batch, heads, queries, keys = (integer("shape", n, 1, 2**31 - 1) for n in (shape if len(shape) == 4 else (*shape, shape[-1])))
        self.shape = batch, heads, queries, keys
        sides = block if isinstance(block, (tuple, list)) else (block, block)
        if len(sides) != 2:
            raise ArgumentError(f"block is {block!r}, must be one number or (q_block, k_block)")
        self.block = integer("block", sides[0], 1, 2**31 - 1), integer("block", sides[1], 1, 2**31 - 1)
        _check_block(self.block, device)
        self._blocks = tuple(-(-n // b) for n, b in zip(self.shape[2:], self.block))
        self._mask = torch.zeros((*self.shape[:2], *self._blocks), dtype=torch.bool, device=device)
        self.block_mask = _block_mask(self._mask, self.block, self.shape[2:], train)
        self.kernel_options = _options(self.block, device)

    def update(self, selection: Selection) -> tuple[BlockMask, dict[str, Any]]:
        """Copies a selection of this shape into the buffers."""
        block = _block_of(selection)
        want = (*self.shape[:2], *self._blocks)
        if selection.shape != want or selection.tokens != self.shape[2:] or \
                any(have != b and n > 1 for have, b, n in zip(block, self.block, self._blocks)):
            raise ArgumentError(f"selection has the shape {selection.shape} in blocks of {block} over {selection.tokens} tokens, must "
                                f"have {want} in blocks of {self.block} over {self.shape[2:]}")
        self._mask.copy_(torch.from_numpy(selection.to_mask()))
        bm = self.block_mask
        for counts, indices, mask in ((bm.full_kv_num_blocks, bm.full_kv_indices, self._mask),
                                      (bm.full_q_num_blocks, bm.full_q_indices, self._mask.transpose(-1, -2))):
            if counts is not None and indices is not None:
                new_counts, new_indices = _lists(mask)
                counts.copy_(new_counts)
                indices.copy_(new_indices)
        return bm, self.kernel_options


def _any_blocks(selection: Selection, device: Device) -> BlockMask:
    """A BlockMask of tiles of 128 for blocks of several sizes: partial tiles ask mask_mod, by the block of each token."""
    mask = torch.from_numpy(selection.to_mask()).to(device)
    q_block, k_block = (torch.repeat_interleave(torch.arange(len(b) - 1), torch.from_numpy(b).diff()).to(device)
                        for b in selection.bounds)

    def selected(b, h, q, k):
        return mask[b, h, q_block[q], k_block[k]]

    from torch.nn.attention.flex_attention import create_block_mask
    seq_q, seq_k = selection.tokens
    return create_block_mask(selected, mask.shape[0], mask.shape[1], seq_q, seq_k, device=device)


def flex_kernel(q: Tensor, k: Tensor, v: Tensor, selection: Optional[Selection] = None, scale: Optional[float] = None,
                train: bool = False, kernel: Optional[Callable[..., Any]] = None) -> tuple[Tensor, Tensor]:
    """(o, lse) of FlexAttention over a selection with blocks of any bounds: what PlanExecutor runs on GPUs.

    kernel: torch.compile of flex_attention; None for flex_attention itself. Blocks of one size go by to_flex; others cost a dense mask of tokens.
    """
    from torch.nn.attention import flex_attention as flex
    call: Any = kernel or flex.flex_attention
    block_mask: Optional[BlockMask] = None
    options: dict[str, Any] = {}
    if selection is not None:
        try:
            block_mask, options = to_flex(selection, q.device, train)
        except ArgumentError:
            block_mask = _any_blocks(selection, q.device)
    more = {"block_mask": block_mask, "kernel_options": options or None, "scale": scale}
    if hasattr(flex, "AuxRequest"):
        o, aux = call(q, k, v, return_aux=flex.AuxRequest(lse=True), **more)
        return o, aux.lse
    o, lse = call(q, k, v, return_lse=True, **more)
    return o, lse
