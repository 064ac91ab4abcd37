# SPDX-License-Identifier: Apache-2.0
"""_exchange.py - the exchange lists of a rank: which rows it sends and gets, and what it computes with them."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np
from numpy.typing import ArrayLike

from ._lib import NULL, ArgumentError, ArgumentTypeError, check, context, copy_of, ffi, int64s, integer, integers, lib, make
from ._selection import Selection

if TYPE_CHECKING:
    from ._plan import Plan


class Slot(NamedTuple):
    """One share: packed query rows against packed key rows of a head. q_ids, k_ids: blocks in packed order."""
    head: int
    q_ids: np.ndarray
    k_ids: np.ndarray
    q_place: int
    q_rows: int
    k_place: int
    k_rows: int


class RingStep(NamedTuple):
    """The keys that a rank holds at one step of a ring. Before a step > 0 keys come iff needed or passes is true."""
    part: int
    k_ids: np.ndarray
    rows: int
    needed: bool
    passes: bool


class Ring(NamedTuple):
    """steps is 1 where nothing circulates; next, previous: ranks; heads: of the group."""
    steps: int
    next: int
    previous: int
    heads: list[int]
    step: list[RingStep]


class _Rows(dict):
    """(send_index, recv_index, send_rows, recv_rows) by name, made when first asked for."""

    def __init__(self, pointer, ranks: int):
        super().__init__()
        self._p, self._ranks = pointer, ranks

    def __missing__(self, name: str) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
        kind = getattr(lib, f"TESS_ROWS_{name}", None) if name in ("Q", "KV", "O", "DO", "DQ", "DKV", "LOW") else None
        if kind is None:
            raise KeyError(f"rows are Q, KV, O, DO, DQ, DKV or LOW, not {name}")
        view = ffi.new("tess_rows_view *")
        check(lib.tess_exchange_view(self._p, kind, view))
        send, recv = np.empty(view.send_total, np.int64), np.empty(view.recv_total, np.int64)
        check(lib.tess_exchange_index(self._p, kind, lib.TESS_LAYOUT_TOKENS, int64s(send), int64s(recv)))
        counts = [copy_of(rows, self._ranks, np.int64).tolist() for rows in (view.send_rows, view.recv_rows)]
        self[name] = send, recv, *counts
        return self[name]


class Exchange:
    """What one rank does to run a layer of a plan.

    rows["Q"], "KV", "O" (and "DO", "DQ", "DKV", "LOW"): (send_index, recv_index, send_rows, recv_rows). Row i of the
    messages, laid one after the other by peer, is row send_index[i] of its source and goes to row recv_index[i] of its
    destination; send_rows and recv_rows count them by peer. The shard's rows are numbered row * heads + head. slots: what
    the rank computes, a list of Slot. ring: a Ring. packed_q, packed_k: rows of the packed buffers.
    """

    def __init__(self, plan: Plan, layer: int, rank: int, bounds: ArrayLike, bounds_k: Optional[ArrayLike] = None):
        q = integers("bounds", bounds)
        k = q if bounds_k is None else integers("bounds_k", bounds_k)
        for name, array in (("bounds", q), ("bounds_k", k)):
            if len(array) != plan.ranks + 1:
                raise ArgumentError(f"{name} has {len(array)} elements, must have {plan.ranks + 1}: ranks + 1")
        work = plan._work if plan.has_masks else NULL
        made = make("tess_exchange", lib.tess_plan_exchange, plan._p, work, integer("layer", layer, 0, 2**31 - 1),
                    integer("rank", rank, 0, plan.ranks - 1), int64s(q), int64s(k))
        self._p = ffi.gc(made, lib.tess_exchange_destroy)
        info = ffi.new("tess_exchange_info *")
        check(lib.tess_exchange_query(self._p, info))
        self.rank, self.ranks, self.heads = info.rank, info.ranks, info.heads
        self.shard_q, self.shard_k = info.shard_q, info.shard_k
        self.packed_q, self.packed_k = info.packed_q, info.packed_k
        self.rows = _Rows(self._p, self.ranks)
        self.slots, self.ring = self._read_slots(), self._read_ring()

    def _read_slots(self) -> list[Slot]:
        first, n = ffi.new("const tess_slot **"), ffi.new("int64_t *")
        check(lib.tess_exchange_slots(self._p, first, n))
        return [Slot(s.head, copy_of(s.q_ids, s.n_q, np.int32), copy_of(s.k_ids, s.n_k, np.int32), s.q_place, s.q_rows,
                     s.k_place, s.k_rows) for s in (first[0][i] for i in range(n[0]))]

    def _read_ring(self) -> Ring:
        view = ffi.new("tess_ring_view *")
        check(lib.tess_exchange_ring(self._p, view))
        steps = [RingStep(s.part, copy_of(s.k_ids, s.n_k, np.int32), s.rows, bool(s.needed), bool(s.passes))
                 for s in (view.step[i] for i in range(view.steps))]
        return Ring(view.steps, view.next, view.previous, copy_of(view.heads, view.n_heads, np.int32).tolist(), steps)

    def selection(self, selection: Selection, slot: int, step: Optional[int] = None) -> Selection:
        """The part of a Selection that slot number `slot` computes (of a ring: at the step), in packed order, one head."""
        if not isinstance(selection, Selection):
            raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a Selection")
        return Selection(make("tess_selection", lib.tess_exchange_selection, context(), self._p, selection._p,
                              integer("slot", slot, -2**31, 2**31 - 1), integer("step", step or 0, -2**31, 2**31 - 1)))
