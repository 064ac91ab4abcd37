# SPDX-License-Identifier: Apache-2.0
"""_plan.py - plans: who computes what.

A plan keeps its work, for selective layers and rings ask it which keys travel.
"""
from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike

from ._exchange import Exchange
from ._lib import (NULL, ArgumentError, ArgumentTypeError, address, check, context, copy_of, ffi, integer, lib, make, number,
                   path_of)
from ._selection import Selection
from ._work import work_of

Source = Union[Selection, Sequence[Selection], ArrayLike, str, "os.PathLike[str]"]

_PIECE = np.dtype([(name, np.int32) for name in ("rank", "head", "q_begin", "q_end", "k_begin", "k_end", "step")])
_DEFAULTS = ffi.cast("tess_plan_opts *", lib.tess_option_table_of(lib.TESS_OPTIONS_PLAN).defaults)
_FIELDS = {name: field.type for name, field in ffi.typeof("tess_plan_opts").fields if name not in ("ranks", "strategy")}


# ---- options ---------------------------------------------------------------------------------------------------------

_ARRAYS = {"speeds": np.int32, "proj_layers": np.uint8, "union_shares": np.float64}


def _set_option(opts, name: str, value: Any, layers: int, kept: list) -> None:
    """Sets a field of tess_plan_opts; arrays that must outlive the plan are added to kept."""
    if name not in _FIELDS:
        raise ArgumentTypeError(f"{name} is no option of plan; there are {', '.join(_FIELDS)}")
    if name in _ARRAYS:
        if value is None:
            return
        shape = {"speeds": (opts.ranks,), "proj_layers": (layers,), "union_shares": (layers, opts.ranks + 1)}[name]
        array = np.ascontiguousarray(value, _ARRAYS[name])
        if array.shape != shape:
            raise ArgumentError(f"{name} has the shape {array.shape}, must be {shape}")
        kept.append(array)
        setattr(opts, name, ffi.cast(_FIELDS[name], address(array)))
    elif name == "pass":
        words = {"fwd": lib.TESS_PLAN_FORWARD, "train": lib.TESS_PLAN_TRAIN}
        if value not in words:
            raise ArgumentError(f"pass_ is {value!r}, must be fwd or train")
        setattr(opts, "pass", words[value])
    elif _FIELDS[name].cname == "double":
        setattr(opts, name, number(name, value))
    else:
        bits = 8 * ffi.sizeof(_FIELDS[name])
        setattr(opts, name, integer(name, value, -2**(bits - 1), 2**(bits - 1) - 1))


def plan(source: Source, ranks: int, *, tokens: Optional[int] = None, block: Optional[int] = None, method: str = "auto",
         cluster: Union[str, os.PathLike[str], None] = None, step: Optional[int] = None, **options: Any) -> Plan:
    """A plan that balances the sparse attention of every layer over the ranks.

    source: one Selection per layer; boolean masks ([layers,] heads, query blocks, key blocks); densities (floats, 0 to 1)
    or weights (integers of any unit) ([layers,] heads); or the path of a profile, a CSV of densities (step: which of its
    steps, by default the mean of all). tokens, block: the sequence and the rows of a block. Selections know theirs;
    densities are of 65,536 tokens in blocks of 128 unless told; weights count 512 rows unless told.

    method: "auto", "contiguous", "snake", "lpt", "db-sp", "refined", "fractional", "refined-equal", "ring", "selective", or
    with degrees, "refined U4 x R2". cluster: a shipped name or the path of a JSON file; plans are then chosen by
    predicted time. options: the fields of tess_plan_opts, such as head_dim=128, equal_heads=True, whole_keys=2,
    whole_heads=True, element_bytes=4, lse=True, speeds=[...], pass_="train".

    >>> import tessera
    >>> p = tessera.plan([90, 10, 10, 10, 10, 10, 10, 10], 4, method="fractional")
    >>> p.ranks, p.layers, round(p.imbalance(0), 2)
    (4, 1, 1.0)
    """
    if not isinstance(method, str):
        raise ArgumentTypeError(f"method is {method!r}, must be a string")
    work = work_of(source, tokens, block, cluster is not None, step)
    kept: list[np.ndarray] = []
    opts = ffi.new("tess_plan_opts *", _DEFAULTS[0])
    opts.ranks = integer("ranks", ranks, 1, 65536)
    if method != "auto":
        check(lib.tess_strategy_parse(method.encode(), opts.ranks, ffi.addressof(opts, "strategy")))
    if options:
        info = ffi.new("tess_work_info *")
        check(lib.tess_work_query(work, info))
        for name, value in options.items():
            _set_option(opts, "pass" if name == "pass_" else name, value, info.layers, kept)
    machine = NULL
    if cluster is not None:
        machine = ffi.gc(make("tess_cluster", lib.tess_cluster_load, context(1), path_of("cluster", cluster)), lib.tess_cluster_destroy)
    made = make("tess_plan", lib.tess_plan_create, context(1), work, machine, opts)
    return Plan(made, work, machine, opts, kept, (tokens, block))


class Candidate(NamedTuple):
    """A way to split a layer, and why it was or was not taken. Times in ns, -1 where not predicted; bytes and memory of
    the rank that has most."""
    strategy: str
    ns: int
    compute_ns: int
    comm_ns: int
    imbalance: float
    kv_copies: float
    bytes: int
    memory: int
    chosen: bool
    reason: str


class Verdict(NamedTuple):
    """Whether a plan still serves; true where it does."""
    keep: bool
    imbalance: float
    carried_ns: int
    reason: str

    def __bool__(self) -> bool:
        return self.keep


class Plan:
    """Who computes what, layer by layer. `plan` makes one, Plan.load reads one.

    ranks, layers, heads; tokens, tokens_k: queries and keys; blocks: (query blocks, key blocks); has_masks: whether the plan
    knows which pairs of blocks are computed.
    """

    def __init__(self, pointer, work=NULL, cluster=NULL, opts=None, kept=(), shape=(None, None)):
        self._p = ffi.gc(pointer, lib.tess_plan_destroy)
        self._work, self._cluster, self._opts, self._arrays, self._shape = work, cluster, opts, kept, shape
        info = ffi.new("tess_plan_info *")
        check(lib.tess_plan_query(self._p, info))
        self.ranks, self.layers, self.heads = info.ranks, info.layers, info.heads
        self.tokens, self.tokens_k = info.tokens_q, info.tokens_k
        self.blocks = info.q_blocks, info.k_blocks
        known = ffi.new("tess_work_info *")
        if work != NULL:
            check(lib.tess_work_query(work, known))
        self.has_masks = bool(known.masks)

    def _layer(self, layer):
        view = ffi.new("tess_plan_layer *")
        check(lib.tess_plan_layer_view(self._p, integer("layer", layer, -2**31, 2**31 - 1), view))
        return view

    def strategy(self, layer: int) -> str:
        """How the layer is split: "fractional", "refined U4 x R2", ..."""
        return _strategy_text(self._layer(layer).strategy)

    def degrees(self, layer: int) -> tuple[int, int, int]:
        """(Ulysses, ring, selective) degrees of the layer; their product is ranks."""
        s = self._layer(layer).strategy
        return s.ulysses, s.ring, s.selective

    def imbalance(self, layer: int) -> float:
        """How many times longer the layer takes than with its work spread evenly; 1 is perfect."""
        return self._layer(layer).rho[lib.TESS_RHO_RING]

    def bytes(self, layer: int) -> Optional[int]:
        """Bytes that the rank sends that sends most; None where a plan's file does not say it."""
        count = self._layer(layer).bytes
        return None if count < 0 else count

    def pieces(self, layer: int, rank: Optional[int] = None) -> np.ndarray:
        """What a rank computes, or all ranks: a structured array with the fields rank, head, q_begin, q_end, k_begin, k_end
        (places of query and key blocks) and step (of a ring)."""
        ranks = range(self.ranks) if rank is None else [integer("rank", rank, 0, self.ranks - 1)]
        count, parts = ffi.new("int64_t *"), []
        for r in ranks:
            check(lib.tess_plan_pieces(self._p, layer, r, NULL, count))
            array = np.empty(count[0], _PIECE)
            check(lib.tess_plan_pieces(self._p, layer, r, ffi.cast("tess_piece *", address(array)), count))
            parts.append(array)
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def head_perm(self, layer: int) -> np.ndarray:
        """The heads in the order of the ranks that compute them, as many for each rank: (heads) int64. ValueError where the
        layer is no permutation of heads."""
        view = self._layer(layer)
        groups = copy_of(view.head_group, self.heads if view.head_group != NULL else 0, np.int32)
        s = view.strategy
        if (not len(groups) or s.ring * s.selective != 1 or view.groups != self.ranks
                or len(set(np.bincount(groups, minlength=view.groups).tolist())) != 1):
            raise ArgumentError(f"layer {layer} is {_strategy_text(s)}, no permutation of heads with as many on every rank: plan "
                                "with equal_heads=True, whole_heads=True")
        return np.argsort(groups, kind="stable")

    def candidates(self, layer: int) -> list[Candidate]:
        """What was tried for the layer, as a list of Candidate; empty for a plan from a file."""
        self._layer(layer)
        found: list[Candidate] = []
        c = ffi.new("tess_candidate *")
        while lib.tess_plan_candidate(self._p, layer, len(found), c) == lib.TESS_OK:
            found.append(Candidate(_strategy_text(c.strategy), c.ns, c.compute_ns, c.comm_ns, c.rho, c.kv_copies, c.bytes,
                                   c.memory, bool(c.chosen), ffi.string(c.reason).decode()))
        return found

    def exchange(self, layer: int, rank: int, bounds: ArrayLike, bounds_k: Optional[ArrayLike] = None) -> Exchange:
        """The Exchange of a rank: which rows it sends, gets and returns.

        bounds: (ranks + 1) rows from 0 to the tokens, rank r owns bounds[r]..bounds[r + 1] - 1 of all heads. bounds_k: those
        of the keys, where they differ.
        """
        return Exchange(self, layer, rank, bounds, bounds_k)

    def keep(self, source: Source, carried_ns: int = 0) -> Verdict:
        """Whether the plan still serves another work of its shape: a Verdict, which is true where it does.

        By the imbalance (replan_above, or 1.1), with a cluster by the losses of the steps since the plan was made:
        carried_ns is that of the verdict before.
        """
        work = work_of(source, self._shape[0], self._shape[1], self._cluster != NULL)
        opts = self._opts
        if opts is None:
            opts = ffi.new("tess_plan_opts *", _DEFAULTS[0])
            opts.ranks = self.ranks
        answer = ffi.new("tess_plan_verdict *")
        check(lib.tess_plan_keep(self._p, work, self._cluster, opts, integer("carried_ns", carried_ns, 0, 2**63 - 1), answer))
        return Verdict(bool(answer.keep), answer.rho, answer.carried_ns, ffi.string(answer.reason).decode())

    def report(self, path: Union[str, os.PathLike[str], None] = None) -> str:
        """The plan as text, a line per layer; with a path also an HTML page there."""
        if path is not None:
            if self._work == NULL:
                raise ArgumentError("path is given, but a plan from a file has no work to draw: make the page with the plan")
            page = ffi.gc(make("tess_plan_report", lib.tess_plan_report_create, context(1), NULL), lib.tess_plan_report_destroy)
            check(lib.tess_plan_report_add(page, 0, self._p, self._work))
            check(lib.tess_plan_report_write(page, path_of("path", path)))
        lines = [f"{self.layers} layers, {self.heads} heads, {self.tokens} tokens on {self.ranks} ranks",
                 "layer  strategy                          imbalance  before   bytes sent"]
        for layer in range(self.layers):
            v = self._layer(layer)
            before = f"{v.rho_before:6.3f}" if v.rho_before >= 0 else "     -"
            lines.append(f"{layer:5}  {_strategy_text(v.strategy):32}  {v.rho[lib.TESS_RHO_RING]:9.3f}  {before}  "
                         f"{v.bytes if v.bytes >= 0 else '-':>11}")
        return "\n".join(lines)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the plan as JSON, which the command and Plan.load read."""
        check(lib.tess_plan_save(self._p, path_of("path", path)))

    @staticmethod
    def load(path: Union[str, os.PathLike[str]]) -> Plan:
        """The plan of a file."""
        return Plan(make("tess_plan", lib.tess_plan_load, context(1), path_of("path", path)))

    def __repr__(self) -> str:
        return f"Plan(ranks={self.ranks}, layers={self.layers}, heads={self.heads}, tokens={self.tokens})"


def _strategy_text(strategy) -> str:
    text = ffi.new("char[]", lib.TESS_STRATEGY_TEXT)
    lib.tess_strategy_format(ffi.new("tess_strategy *", strategy), text)
    return ffi.string(text).decode()
