# SPDX-License-Identifier: Apache-2.0
"""_formats.py - selections as the arrays that kernels of other projects take, and back."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from ._lib import ArgumentError, ArgumentTypeError, integer, integers

if TYPE_CHECKING:
    from ._selection import Selection


def _sizes(selection: Selection, transposed: bool) -> tuple[int, int, int, int]:
    """(batch, heads, rows, columns) of the lists."""
    batch, heads, n_q, n_k = selection.shape
    return (batch, heads, n_k, n_q) if transposed else (batch, heads, n_q, n_k)


def _sorted_lists(selection: Selection, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and indices of the lists, by query block or by key block."""
    offsets, indices = selection.lists()
    if not transposed:
        return offsets, indices
    batch, heads, n_q, n_k = selection.shape
    lists = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows = lists // max(n_q, 1) * n_k + indices  # (batch, head, key block)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=batch * heads * n_k)
    return np.concatenate([[0], np.cumsum(counts)]), (lists % max(n_q, 1))[order].astype(np.int32)


def export(selection: Selection, form: str, *, transposed: bool = False, compact: bool = False):
    """Selection.export: see there."""
    if form not in ("lists", "mask", "csr"):
        raise ArgumentError(f"form is {form!r}, must be lists, mask or csr")
    if compact and form != "lists":
        raise ArgumentError(f"compact is of lists alone, form is {form!r}")
    if form == "mask":
        mask = selection.to_mask()
        return mask.swapaxes(2, 3) if transposed else mask
    offsets, indices = _sorted_lists(selection, transposed)
    if form == "csr":
        if offsets[-1] > 2**31 - 1:
            raise ArgumentError(f"form csr: {offsets[-1]} indices, must be below 2^31 for an int32 indptr")
        return offsets.astype(np.int32), indices
    batch, heads, rows, columns = _sizes(selection, transposed)
    counts = np.diff(offsets).astype(np.int32)
    width = max(1, int(counts.max(initial=0))) if compact else columns
    table = np.zeros((len(counts), width), np.int32)
    line = np.repeat(np.arange(len(counts)), counts)
    table[line, np.arange(len(indices)) - offsets[line]] = indices
    return counts.reshape(batch, heads, rows), table.reshape(batch, heads, rows, width)


def _from_rows(cls, offsets, indices, batch, heads, rows, columns, transposed, shape) -> Selection:
    """A selection of lists by rows, which are query blocks, or key blocks where transposed."""
    if transposed:
        lists = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        keys = lists // max(rows, 1) * columns + indices
        order = np.argsort(keys, kind="stable")
        indices = (lists % max(rows, 1))[order].astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=batch * heads * columns))])
    return cls.from_lists(offsets, indices, batch=batch, heads=heads, **shape)


def _blocks_of(block, tokens: int) -> int:
    """The number of blocks of a side."""
    return len(block) - 1 if np.ndim(block) else -(-tokens // integer("block", block, 1, 2**31 - 1))


def from_counts(cls, counts, indices, *, q_block, k_block, seq_q, seq_k=None, transposed=False) -> Selection:
    """Selection.from_counts: see there."""
    counts, indices = np.asarray(counts), np.asarray(indices)
    if counts.ndim == 2 and indices.ndim == 3:
        counts, indices = counts[None], indices[None]
    if counts.ndim != 3 or indices.ndim != 4 or indices.shape[:3] != counts.shape:
        raise ArgumentError(f"counts has the shape {counts.shape} and indices {indices.shape}, must be ([batch,] heads, blocks) "
                            "and ([batch,] heads, blocks, width)")
    batch, heads, rows, width = indices.shape
    seq_k = seq_q if seq_k is None else seq_k
    want = _blocks_of(k_block, seq_k) if transposed else _blocks_of(q_block, seq_q)
    columns = _blocks_of(q_block, seq_q) if transposed else _blocks_of(k_block, seq_k)
    if rows != want:
        raise ArgumentError(f"counts has {rows} blocks, must have {want}")
    flat = integers("counts", counts.reshape(-1))
    if flat.size and (flat.min() < 0 or flat.max() > width):
        raise ArgumentError(f"counts has {flat.min()}..{flat.max()}, must be 0..{width}, the width of indices")
    table = integers("indices", indices.reshape(-1), np.int32).reshape(-1, width)
    taken = np.arange(width) < flat[:, None]
    chosen = np.sort(np.where(taken, table, 2**31 - 1), axis=1)[taken]
    if chosen.size and (chosen.min() < 0 or chosen.max() >= columns):
        raise ArgumentError(f"indices has {chosen.min()}..{chosen.max()}, must be 0..{columns - 1}")
    offsets = np.concatenate([[0], np.cumsum(flat)])
    return _from_rows(cls, offsets, chosen, batch, heads, rows, columns, transposed,
                      dict(seq_q=seq_q, seq_k=seq_k, q_block=q_block, k_block=k_block))


def from_csr(cls, indptr, indices, *, batch, heads, q_block, k_block, seq_q, seq_k=None, transposed=False) -> Selection:
    """Selection.from_csr: see there."""
    seq_k = seq_q if seq_k is None else seq_k
    indptr, indices = integers("indptr", indptr), integers("indices", indices, np.int32)
    n_q, n_k = _blocks_of(q_block, seq_q), _blocks_of(k_block, seq_k)
    rows, columns = (n_k, n_q) if transposed else (n_q, n_k)
    if len(indptr) != batch * heads * rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ArgumentError(f"indptr has {len(indptr)} elements, must have {batch * heads * rows + 1} that rise from 0 to the "
                            f"number of indices, {len(indices)}")
    if indices.size and (indices.min() < 0 or indices.max() >= columns):
        raise ArgumentError(f"indices has {indices.min()}..{indices.max()}, must be 0..{columns - 1}")
    return _from_rows(cls, indptr, indices, batch, heads, rows, columns, transposed,
                      dict(seq_q=seq_q, seq_k=seq_k, q_block=q_block, k_block=k_block))


def _axis_mask(count: int, window: int) -> np.ndarray:
    """(count, count): which tiles a tile sees along an axis; the window is moved inside at the ends."""
    window = min(window, count)
    first = np.clip(np.arange(count) - (window - 1) // 2, 0, count - window)[:, None]
    return (np.arange(count) >= first) & (np.arange(count) < first + window)


def _sta_windows(strategy, step: int, layer: int) -> np.ndarray:
    """(heads, 3) windows: given as such, or of a step and layer of a strategy file, {"step_layer_head": [t, h, w]}."""
    if isinstance(strategy, (str, os.PathLike)):
        import json  # not above: it would be a fifth of the time of import tessera
        with open(strategy, encoding="utf-8") as file:
            strategy = json.load(file)
    if isinstance(strategy, dict):
        found = {int(key.split("_")[2]): value for key, value in strategy.items()
                 if key.count("_") == 2 and key.split("_")[:2] == [str(step), str(layer)]}
        if not found or sorted(found) != list(range(len(found))):
            raise ArgumentError(f"strategy has no windows of all heads for step {step}, layer {layer}: keys must be "
                                '"step_layer_head"')
        strategy = [found[head] for head in range(len(found))]
    windows = np.asarray(strategy)
    if windows.dtype.kind not in "iu":
        raise ArgumentTypeError(f"strategy is of {windows.dtype}, must be windows of integers")
    if windows.ndim != 2 or windows.shape[1] != 3 or (windows < 1).any():
        raise ArgumentError(f"strategy has the shape {windows.shape}, must be (heads, 3): tiles of 1 or more along frames, rows, "
                            "columns")
    return windows


def from_sta(cls, strategy, grid, cube, *, step=0, layer=0) -> Selection:
    """Selection.from_sta: see there."""
    from ._selectors import order_cubes
    windows = _sta_windows(strategy, step, layer)
    bounds = order_cubes(grid, cube)[2]
    tiles = [-(-g // c) for g, c in zip(grid, cube)]
    n = int(np.prod(tiles))
    mask = np.empty((len(windows), n, n), bool)
    for head, window in enumerate(windows):
        t, h, w = (_axis_mask(count, int(size)) for count, size in zip(tiles, window))
        mask[head] = (t[:, None, None, :, None, None] & h[None, :, None, None, :, None] & w[None, None, :, None, None, :]).reshape(n, n)
    return cls.from_mask(mask, bounds, bounds, int(bounds[-1]))


def from_sparge(cls, mask, seq_q, seq_k=None, q_block=128, k_block=64) -> Selection:
    """Selection.from_sparge: see there."""
    return cls.from_mask(np.asarray(mask) != 0, q_block, k_block, seq_q, seq_k)
