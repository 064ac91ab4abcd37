# SPDX-License-Identifier: Apache-2.0
"""_selection.py - selections: which keys each query attends to."""
from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike

from . import _formats
from ._lib import (ArgumentError, ArgumentTypeError, address, check, context, copy_of, ffi, int32s, int64s, integer, integers,
                   lib, make, number, rows_of, view_of)

TOKENS_MAX = 2**31 - 1
Block = Union[int, Sequence[int], np.ndarray]  # tokens of a block, or the bounds of all
Ranges = Sequence[Sequence[int]]  # (first, count) of each


def _blocks(name: str, block: Block, tokens: int) -> tuple[int, int, Optional[np.ndarray]]:
    """(number of blocks, size, bounds) of a side: a size, or an array of bounds from 0 to tokens."""
    if np.ndim(block) == 0:
        size = integer(name, block, 1, TOKENS_MAX)
        return -(-tokens // size), size, None
    bounds = integers(name, block)
    if len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != tokens or (np.diff(bounds) <= 0).any():
        raise ArgumentError(f"{name} are bounds from {bounds[0] if len(bounds) else None} to "
                            f"{bounds[-1] if len(bounds) else None}, must ascend from 0 to {tokens}")
    return len(bounds) - 1, 0, bounds


def sel_shape(batch: int, heads: int, seq_q: int, seq_k: int, q_block: Block, k_block: Block) -> tuple[Any, tuple]:
    """A tess_sel_shape, its numbers of blocks, and the arrays that must outlive the call."""
    shape = ffi.new("tess_sel_shape *")
    shape.batch, shape.heads = integer("batch", batch, 1, 65536), integer("heads", heads, 1, 65536)
    shape.tokens_q, shape.tokens_k = integer("seq_q", seq_q, 0, TOKENS_MAX), integer("seq_k", seq_k, 0, TOKENS_MAX)
    shape.n_q, shape.group, bounds_q = _blocks("q_block", q_block, shape.tokens_q)
    shape.n_k, shape.unit, bounds_k = _blocks("k_block", k_block, shape.tokens_k)
    if bounds_q is not None:
        shape.bounds_q = int64s(bounds_q)
    if bounds_k is not None:
        shape.bounds_k = int64s(bounds_k)
    return shape, (bounds_q, bounds_k)


def _ranges(name: str, ranges: Ranges) -> tuple[Any, int]:
    """tess_row_range[] and its length."""
    if any(np.shape(r) != (2,) for r in ranges):
        raise ArgumentError(f"{name} is {ranges!r}, must be pairs (first, count)")
    rows = [{"first": integer(f"{name}[{i}][0]", r[0], 0, TOKENS_MAX), "n": integer(f"{name}[{i}][1]", r[1], 1, TOKENS_MAX)}
            for i, r in enumerate(ranges)]
    return ffi.new("tess_row_range[]", rows), len(rows)


def _touched(bounds: np.ndarray, ranges: tuple[Any, int]) -> np.ndarray:
    """Which blocks have a token of these ranges."""
    of = np.zeros(len(bounds) - 1, bool)
    for i in range(ranges[1]):
        first, end = ranges[0][i].first, ranges[0][i].first + ranges[0][i].n
        of[max(np.searchsorted(bounds, first, "right") - 1, 0):np.searchsorted(bounds, end)] = True
    return of


class Measured(NamedTuple):
    """What a selection holds of the softmax: shares of 1.

    mass: of the selected keys in all mass. recall: in the mass of as many units chosen by the oracle.
    """
    mass: float
    recall: float


class Selection:
    """Which keys each query attends to: for every (batch, head, query block) an ascending list of key blocks.

    Blocks have one size on a side, the last one may be shorter, or bounds of their own. A selection does not change;
    it can be used by several threads at once.

    >>> import numpy as np, tessera
    >>> mask = np.tril(np.ones((1, 4, 4), bool))
    >>> s = tessera.Selection.from_mask(mask, 16, 16, 64)
    >>> s.shape, s.density
    ((1, 1, 4, 4), 0.625)
    """

    __slots__ = ("_p", "_lists", "__weakref__")

    def __init__(self, pointer):
        self._p = ffi.gc(pointer, lib.tess_selection_destroy)
        self._lists = None

    @classmethod
    def from_mask(cls, mask: ArrayLike, q_block: Block, k_block: Block, seq_q: int, seq_k: Optional[int] = None) -> Selection:
        """The selection of a block mask.

        mask: ([batch,] heads, query blocks, key blocks), boolean or integers (not 0 selects). q_block, k_block: tokens
        of a block, or the bounds of the blocks (blocks + 1 numbers from 0 to the tokens). seq_q, seq_k: tokens;
        without seq_k as many keys as queries.
        """
        mask = np.asarray(mask)
        if mask.dtype.kind not in "biu":
            raise ArgumentTypeError(f"mask is of {mask.dtype}, must be boolean or of integers")
        if mask.ndim not in (3, 4):
            raise ArgumentError(f"mask has the shape {mask.shape}, must be ([batch,] heads, query blocks, key blocks)")
        mask = mask[None] if mask.ndim == 3 else mask
        shape, kept = sel_shape(mask.shape[0], mask.shape[1], seq_q, seq_q if seq_k is None else seq_k, q_block, k_block)
        for have, want, word, tokens in ((mask.shape[2], shape.n_q, "query", shape.tokens_q),
                                         (mask.shape[3], shape.n_k, "key", shape.tokens_k)):
            if have != want:
                raise ArgumentError(f"mask has {have} {word} blocks, must have {want} for {tokens} tokens")
        mask = np.ascontiguousarray(mask if mask.dtype.itemsize == 1 else mask != 0)
        made = cls(make("tess_selection", lib.tess_selection_create, context(), shape, int(np.count_nonzero(mask))))
        check(lib.tess_selection_set_mask(made._p, ffi.cast("void *", address(mask)), lib.TESS_MASK_BYTES))
        return made

    @classmethod
    def from_lists(cls, offsets: ArrayLike, indices: ArrayLike, *, batch: int, heads: int, seq_q: int, seq_k: int,
                   q_block: Block, k_block: Block) -> Selection:
        """The selection of lists: that of (batch b, head h, query block g) is indices[offsets[i]:offsets[i + 1]],
        i = (b * heads + h) * query blocks + g, ascending key blocks.

        offsets: (batch * heads * query blocks + 1), from 0 to the number of indices. Blocks as in from_mask.
        """
        offsets, indices = integers("offsets", offsets), integers("indices", indices, np.int32)
        shape, kept = sel_shape(batch, heads, seq_q, seq_k, q_block, k_block)
        lists = shape.batch * shape.heads * shape.n_q
        if len(offsets) != lists + 1:
            raise ArgumentError(f"offsets has {len(offsets)} elements, must have {lists + 1}: batch * heads * query blocks + 1")
        if offsets[-1] != len(indices):
            raise ArgumentError(f"offsets ends with {offsets[-1]}, must end with the number of indices, {len(indices)}")
        made = cls(make("tess_selection", lib.tess_selection_create, context(), shape, len(indices)))
        check(lib.tess_selection_set_lists(made._p, int64s(offsets), int32s(indices)))
        return made

    def _view(self):
        if self._lists is None:
            view = ffi.new("tess_selection_lists *")
            check(lib.tess_selection_view(self._p, view))
            self._lists = view
        return self._lists

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, heads, query blocks, key blocks)."""
        s = self._view().shape
        return s.batch, s.heads, s.n_q, s.n_k

    @property
    def tokens(self) -> tuple[int, int]:
        """(queries, keys)."""
        s = self._view().shape
        return s.tokens_q, s.tokens_k

    @property
    def block(self) -> tuple[Optional[int], Optional[int]]:
        """(q_block, k_block): tokens of a block; None on a side whose blocks have bounds of their own."""
        s = self._view().shape
        return s.group or None, s.unit or None

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Where blocks begin: (query blocks + 1) and (key blocks + 1) numbers, int64."""
        s = self._view().shape
        return copy_of(s.bounds_q, s.n_q + 1, np.int64), copy_of(s.bounds_k, s.n_k + 1, np.int64)

    @property
    def density(self) -> float:
        """Selected pairs of tokens over all pairs, 0 to 1."""
        return self._view().density

    @property
    def pairs(self) -> int:
        """Selected (query, key) pairs of tokens, over batch and heads."""
        return self._view().pairs

    def lists(self) -> tuple[np.ndarray, np.ndarray]:
        """(offsets int64, indices int32), as from_lists takes them."""
        view = self._view()
        offsets = copy_of(view.offsets, view.lists + 1, np.int64)
        return offsets, copy_of(view.indices, int(offsets[-1]), np.int32)

    def to_mask(self, tokens: bool = False) -> np.ndarray:
        """The boolean mask (batch, heads, query blocks, key blocks); of tokens instead of blocks if asked for."""
        offsets, indices = self.lists()
        batch, heads, n_q, n_k = self.shape
        rows = np.zeros((batch * heads * n_q, n_k), bool)
        rows[np.repeat(np.arange(len(rows)), np.diff(offsets)), indices] = True
        mask: np.ndarray = rows.reshape(batch, heads, n_q, n_k)
        if tokens:
            bounds_q, bounds_k = self.bounds
            mask = np.repeat(np.repeat(mask, np.diff(bounds_q), axis=2), np.diff(bounds_k), axis=3)
        return mask

    def coarsen(self, q_block: Block, k_block: Block) -> Selection:
        """The same pairs, and the fewest more, in other blocks: a pair of blocks is selected if any pair of its tokens is."""
        s = self._view().shape
        shape, kept = sel_shape(s.batch, s.heads, s.tokens_q, s.tokens_k, q_block, k_block)
        return Selection(make("tess_selection", lib.tess_selection_coarsen, context(), self._p, shape))

    def with_roles(self, *, pinned_k: Ranges = (), dense_q: Ranges = ()) -> Selection:
        """The selection with tokens that must not be lost, such as those of a text or of the first frame.

        Ranges are pairs (first, count) of tokens, ascending, without overlap. Key blocks with a token of pinned_k go into
        every list; query blocks with one of dense_q attend to all keys. What the lists had they keep.
        """
        roles = ffi.new("tess_token_roles *")
        roles.pinned_k, roles.n_pinned_k = kept_k = _ranges("pinned_k", pinned_k)
        roles.dense_q, roles.n_dense_q = kept_q = _ranges("dense_q", dense_q)
        offsets, indices = self.lists()
        bounds_q, bounds_k = self.bounds
        (batch, heads, _, n_k), (seq_q, seq_k) = self.shape, self.tokens
        most = np.minimum(np.diff(offsets) + np.count_nonzero(_touched(bounds_k, kept_k)), n_k)
        most[np.tile(_touched(bounds_q, kept_q), batch * heads)] = n_k
        q_block, k_block = self.block
        shape, kept = sel_shape(batch, heads, seq_q, seq_k, q_block or bounds_q, k_block or bounds_k)
        made = Selection(make("tess_selection", lib.tess_selection_create, context(), shape, int(most.sum())))
        check(lib.tess_selection_set_lists(made._p, int64s(offsets), int32s(indices)))
        check(lib.tess_selection_roles(made._p, roles))
        del kept, kept_k, kept_q
        return made

    def _of_queries(self, queries: Ranges, q: np.ndarray) -> tuple[Selection, np.ndarray]:
        """The lists of the query blocks with a token of these ranges, and their rows of q."""
        (batch, heads, n_q, _), (seq_q, seq_k) = self.shape, self.tokens
        ranges, n = _ranges("queries", queries)
        for i in range(n):
            if ranges[i].first + ranges[i].n > seq_q:
                raise ArgumentError(f"queries[{i}] is {ranges[i].n} rows from {ranges[i].first} on, must be of 0..{seq_q - 1}")
        offsets, indices = self.lists()
        bounds_q, bounds_k = self.bounds
        of = _touched(bounds_q, (ranges, n))
        counts, lists = np.diff(offsets), np.tile(of, batch * heads)
        part = Selection.from_lists(np.concatenate(([0], np.cumsum(counts[lists]))), indices[np.repeat(lists, counts)],
                                    batch=batch, heads=heads, seq_q=int(np.diff(bounds_q)[of].sum()), seq_k=seq_k,
                                    q_block=np.concatenate(([0], np.cumsum(np.diff(bounds_q)[of]))), k_block=bounds_k)
        return part, np.ascontiguousarray(q[:, :, np.repeat(of, np.diff(bounds_q))])

    def measure(self, q: np.ndarray, k: np.ndarray, *, scale: Optional[float] = None, every: int = 1,
                queries: Optional[Ranges] = None) -> Measured:
        """How much of the softmax of q and k, (batch, heads, tokens, head_dim) float32, the selection holds.

        Returns Measured(mass, recall). every: measures every n-th query block of each head. queries: measures the blocks with
        a token of these ranges, pairs (first, count), such as those of one role.
        """
        if queries is not None:
            rows_of("q", q)
            if q.shape[2] != self.tokens[0]:
                raise ArgumentError(f"q has {q.shape[2]} tokens, must have {self.tokens[0]}")
            part, rows = self._of_queries(queries, q)
            return part.measure(rows, k, scale=scale, every=every)
        given, stats = ffi.new("tess_sel_measure_in *"), ffi.new("tess_sel_stats *")
        kept = fill_qk(given, q, k, self._view().shape, scale)
        given.every = integer("every", every, 1, TOKENS_MAX)
        check(lib.tess_selection_measure(context(), self._p, given, stats))
        del kept
        return Measured(stats.mass, stats.recall)

    def export(self, form: str, *, transposed: bool = False, compact: bool = False) -> Union[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The selection as arrays that kernels take.

        "lists": counts (batch, heads, query blocks) and indices (..., width), int32, ascending, packed left, 0 behind;
        as wide as there are key blocks, or with compact as the longest list. "mask": boolean (batch, heads, query blocks,
        key blocks). "csr": indptr and indices, int32, a row for each (batch, head, query block). transposed: by key block,
        with indices of query blocks. Sizes of blocks are not in them: see .block and .bounds.
        """
        return _formats.export(self, form, transposed=transposed, compact=compact)

    @classmethod
    def from_counts(cls, counts: ArrayLike, indices: ArrayLike, *, q_block: Block, k_block: Block, seq_q: int,
                    seq_k: Optional[int] = None, transposed: bool = False) -> Selection:
        """The selection of export("lists"), full or compact, also FlexAttention's (kv_num_blocks, kv_indices): counts
        ([batch,] heads, blocks), indices ([batch,] heads, blocks, width); what stands behind a count is not read."""
        return _formats.from_counts(cls, counts, indices, q_block=q_block, k_block=k_block, seq_q=seq_q, seq_k=seq_k,
                                    transposed=transposed)

    @classmethod
    def from_csr(cls, indptr: ArrayLike, indices: ArrayLike, *, batch: int, heads: int, q_block: Block, k_block: Block,
                 seq_q: int, seq_k: Optional[int] = None, transposed: bool = False) -> Selection:
        """The selection of export("csr"): ascending indices of each (batch, head, block)."""
        return _formats.from_csr(cls, indptr, indices, batch=batch, heads=heads, q_block=q_block, k_block=k_block, seq_q=seq_q,
                                 seq_k=seq_k, transposed=transposed)

    @classmethod
    def from_sta(cls, strategy: Union[ArrayLike, dict, str, os.PathLike[str]], grid: Sequence[int], cube: Sequence[int], *,
                 step: int = 0, layer: int = 0) -> Selection:
        """The selection of STA's window strategy, tokens in cube order (order_cubes).

        strategy: windows (heads, 3) in tiles, or FastVideo's {"step_layer_head": [t, h, w]} or the path of such a JSON
        file, of which step and layer are taken. grid: tokens along frames, rows, columns; cube: a tile, (6, 8, 8) there.
        """
        return _formats.from_sta(cls, strategy, grid, cube, step=step, layer=layer)

    @classmethod
    def from_sparge(cls, mask: ArrayLike, seq_q: int, seq_k: Optional[int] = None, q_block: int = 128, k_block: int = 64) -> Selection:
        """The selection of SpargeAttn's mask_id: ([batch,] heads, blocks of 128 queries, blocks of 64 keys), 0 or 1."""
        return _formats.from_sparge(cls, mask, seq_q, seq_k, q_block, k_block)

    def __repr__(self) -> str:
        batch, heads, n_q, n_k = self.shape
        return f"Selection(batch={batch}, heads={heads}, blocks=({n_q}, {n_k}), tokens={self.tokens}, density={self.density:.4g})"


def fill_qk(given, q: np.ndarray, k: np.ndarray, shape, scale: Optional[float]) -> tuple:
    """Fills q, k, head_dim and scale of a struct; returns what must outlive the call."""
    q, k = rows_of("q", q), rows_of("k", k)
    for name, array, tokens in (("q", q, shape.tokens_q), ("k", k, shape.tokens_k)):
        if array.shape[:3] != (shape.batch, shape.heads, tokens):
            raise ArgumentError(f"{name} has the shape {array.shape}, must be ({shape.batch}, {shape.heads}, {tokens}, head_dim)")
    if q.shape[3] != k.shape[3]:
        raise ArgumentError(f"k has the head_dim {k.shape[3]}, must be that of q, {q.shape[3]}")
    views = [view_of(array, ffi.new("tess_view *")) for array in (q, k)]
    given.q, given.k = views
    given.head_dim = q.shape[3]
    given.scale = 0.0 if scale is None else number("scale", scale)
    return q, k, views
