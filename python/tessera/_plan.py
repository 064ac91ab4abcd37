# SPDX-License-Identifier: Apache-2.0
"""_plan.py - plans: who computes what; and the exchange lists of a rank.

A work of C is made of what the caller has: selections, masks, weights, densities or a profile. A plan keeps its work, for
selective layers and rings ask it which keys travel.
"""
import os
from typing import NamedTuple

import numpy as np

from ._lib import (NULL, ArgumentError, ArgumentTypeError, address, check, context, copy_of, doubles, ffi, floats, int32s,
                   int64s, integer, integers, lib, make, number, path_of)
from ._selection import Selection

_PIECE = np.dtype([(name, np.int32) for name in ("rank", "head", "q_begin", "q_end", "k_begin", "k_end", "step")])
_DEFAULTS = ffi.cast("tess_plan_opts *", lib.tess_option_table_of(lib.TESS_OPTIONS_PLAN).defaults)
_FIELDS = {name: field.type for name, field in ffi.typeof("tess_plan_opts").fields}
_WEIGHT_BLOCKS, _DENSITY_TOKENS, _DENSITY_BLOCK = 512, 65536, 128


# ---- work ------------------------------------------------------------------------------------------------------------

def _layers(name, array, dims, words):
    """The array with its dimension of layers."""
    if array.ndim not in (dims, dims + 1):
        raise ArgumentError(f"{name} has the shape {array.shape}, must be ([layers,] {words})")
    return np.ascontiguousarray(array[None] if array.ndim == dims else array)


def _work_of_selections(ctx, layers):
    for i, layer in enumerate(layers):
        if not isinstance(layer, Selection):
            raise ArgumentTypeError(f"source[{i}] is a {type(layer).__name__}, must be a Selection as source[0]")
    return make("tess_work", lib.tess_work_from_selection, ctx, ffi.new("tess_selection *[]", [s._p for s in layers]), len(layers))


def _work_of_masks(ctx, array, tokens, block):
    array = _layers("source", array, 3, "heads, query blocks, key blocks)")
    masks = ffi.new("tess_mask_set *")
    masks.layers, masks.heads, masks.q_blocks, masks.k_blocks = array.shape
    masks.data = ffi.cast("void *", address(array))
    if (tokens is None) != (block is None):
        raise ArgumentError("tokens and block: masks need both or none of them")
    if tokens is not None:
        masks.tokens_q = masks.tokens_k = tokens
        masks.group = masks.unit = block
    return make("tess_work", lib.tess_work_from_masks, ctx, masks)


def _work_of_densities(ctx, array, tokens, block):
    array = np.ascontiguousarray(array, np.float64)
    return make("tess_work", lib.tess_work_from_density, ctx, doubles(array), *array.shape, tokens or _DENSITY_TOKENS,
                block or _DENSITY_BLOCK)


def _work_of_weights(ctx, array, tokens, block, cluster):
    if tokens is not None and block is not None:
        if cluster is not None:
            raise ArgumentError("source is of weights, whose time on a cluster is not known: give densities (floats) instead")
        most = max(1, int(array.max())) if array.size else 1
        if array.size and array.min() < 0:
            raise ArgumentError(f"source has the weight {array.min()}, must be 0 or more")
        return _work_of_densities(ctx, array / most, tokens, block)
    weights = np.ascontiguousarray(array, np.int64)
    return make("tess_work", lib.tess_work_from_weights, ctx, int64s(weights), *weights.shape, tokens or _WEIGHT_BLOCKS)


def _work_of_file(ctx, path, tokens, block, step):
    """Masks of a tensor file, or the densities of a profile: those of a step, by default the mean over steps."""
    encoded = path_of("source", path)
    if encoded.endswith((b".npy", b".npz", b".safetensors")):
        opts = ffi.new("tess_mask_opts *")
        opts.group = opts.unit = block or 0
        opts.tokens_q = opts.tokens_k = tokens or 0
        return make("tess_work", lib.tess_work_load, ctx, encoded, opts)
    profile = ffi.gc(make("tess_profile", lib.tess_profile_open, ctx, encoded, NULL), lib.tess_profile_close)
    view = ffi.new("tess_profile_view *")
    check(lib.tess_profile_query(profile, view))
    density = copy_of(view.density, view.steps * view.layers * view.heads, np.float64).reshape(view.steps, view.layers, view.heads)
    if step is None:
        return _work_of_densities(ctx, density.mean(axis=0), tokens, block)
    steps = copy_of(view.step, view.steps, np.int64).tolist()
    if step not in steps:
        raise ArgumentError(f"step is {step}, must be one of the profile's, {steps[0]}..{steps[-1]}")
    return _work_of_densities(ctx, density[steps.index(step)], tokens, block)


def _work(source, tokens, block, cluster, step=None):
    """The tess_work of a source."""
    ctx = context(1)
    tokens = None if tokens is None else integer("tokens", tokens, 1, 2**31 - 1)
    block = None if block is None else integer("block", block, 1, 2**31 - 1)
    if isinstance(source, (str, bytes, os.PathLike)):
        made = _work_of_file(ctx, source, tokens, block, step)
    elif isinstance(source, Selection):
        made = _work_of_selections(ctx, [source])
    elif isinstance(source, (list, tuple)) and source and isinstance(source[0], Selection):
        made = _work_of_selections(ctx, source)
    else:
        array = np.asarray(source)
        if array.dtype == bool:
            made = _work_of_masks(ctx, array, tokens, block)
        elif array.dtype.kind in "iu":
            made = _work_of_weights(ctx, _layers("source", array, 1, "heads)"), tokens, block, cluster)
        elif array.dtype.kind == "f":
            made = _work_of_densities(ctx, _layers("source", array, 1, "heads)"), tokens, block)
        else:
            raise ArgumentTypeError(f"source is a {type(source).__name__} of {array.dtype}, must be selections, boolean masks, "
                                    "densities (floats), weights (integers) or the path of a profile")
    return ffi.gc(made, lib.tess_work_destroy)


# ---- options ---------------------------------------------------------------------------------------------------------

_ARRAYS = {"speeds": np.int32, "proj_layers": np.uint8, "union_shares": np.float64}


def _set_option(opts, name, value, layers, kept):
    if name not in _FIELDS or name in ("ranks", "strategy"):
        raise ArgumentTypeError(f"{name} is no option of plan; there are {', '.join(n for n in _FIELDS if n not in ('ranks', 'strategy'))}")
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
        setattr(opts, name, integer(name, int(value) if isinstance(value, (bool, np.bool_)) else value, -2**31, 2**63 - 1)
                if _FIELDS[name].cname == "int64_t" else
                integer(name, int(value) if isinstance(value, (bool, np.bool_)) else value, -2**31, 2**31 - 1))


def plan(source, ranks, *, tokens=None, block=None, method="auto", cluster=None, step=None, **options):
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
    work = _work(source, tokens, block, cluster, step)
    opts, kept = ffi.new("tess_plan_opts *", _DEFAULTS[0]), []
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

    def __bool__(self):
        return self.keep


class Plan:
    """Who computes what, layer by layer. `plan` makes one, Plan.load reads one."""

    def __init__(self, pointer, work=NULL, cluster=NULL, opts=None, kept=(), shape=(None, None)):
        self._p = ffi.gc(pointer, lib.tess_plan_destroy)
        self._work, self._cluster, self._opts, self._arrays, self._shape = work, cluster, opts, kept, shape
        info = ffi.new("tess_plan_info *")
        check(lib.tess_plan_query(self._p, info))
        self.ranks, self.layers, self.heads = info.ranks, info.layers, info.heads
        self.tokens, self.tokens_k = info.tokens_q, info.tokens_k
        self.blocks = info.q_blocks, info.k_blocks

    def _layer(self, layer):
        view = ffi.new("tess_plan_layer *")
        check(lib.tess_plan_layer_view(self._p, integer("layer", layer, -2**31, 2**31 - 1), view))
        return view

    def strategy(self, layer):
        """How the layer is split: "fractional", "refined U4 x R2", ..."""
        return _strategy_text(self._layer(layer).strategy)

    def imbalance(self, layer):
        """How many times longer the layer takes than with its work spread evenly; 1 is perfect."""
        return self._layer(layer).rho[lib.TESS_RHO_RING]

    def bytes(self, layer):
        """Bytes that the rank sends that sends most; None where a plan's file does not say it."""
        count = self._layer(layer).bytes
        return None if count < 0 else count

    def pieces(self, layer, rank=None):
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

    def head_perm(self, layer):
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

    def candidates(self, layer):
        """What was tried for the layer, as a list of Candidate; empty for a plan from a file."""
        self._layer(layer)
        found, c = [], ffi.new("tess_candidate *")
        while lib.tess_plan_candidate(self._p, layer, len(found), c) == lib.TESS_OK:
            found.append(Candidate(_strategy_text(c.strategy), c.ns, c.compute_ns, c.comm_ns, c.rho, c.kv_copies, c.bytes,
                                   c.memory, bool(c.chosen), ffi.string(c.reason).decode()))
        return found

    def exchange(self, layer, rank, bounds, bounds_k=None):
        """The Exchange of a rank: which rows it sends, gets and returns.

        bounds: (ranks + 1) rows from 0 to the tokens, rank r owns bounds[r]..bounds[r + 1] - 1 of all heads. bounds_k: those
        of the keys, where they differ.
        """
        return Exchange(self, layer, rank, bounds, bounds_k)

    def keep(self, source, carried_ns=0):
        """Whether the plan still serves another work of its shape: a Verdict, which is true where it does.

        By the imbalance (replan_above, or 1.1), with a cluster by the losses of the steps since the plan was made:
        carried_ns is that of the verdict before.
        """
        work = _work(source, *self._shape, None if self._cluster == NULL else 1)
        opts = self._opts
        if opts is None:
            opts = ffi.new("tess_plan_opts *", _DEFAULTS[0])
            opts.ranks = self.ranks
        answer = ffi.new("tess_plan_verdict *")
        check(lib.tess_plan_keep(self._p, work, self._cluster, opts, integer("carried_ns", carried_ns, 0, 2**63 - 1), answer))
        return Verdict(bool(answer.keep), answer.rho, answer.carried_ns, ffi.string(answer.reason).decode())

    def report(self, path=None):
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

    def save(self, path):
        """Writes the plan as JSON, which the command and Plan.load read."""
        check(lib.tess_plan_save(self._p, path_of("path", path)))

    @staticmethod
    def load(path):
        """The plan of a file."""
        return Plan(make("tess_plan", lib.tess_plan_load, context(1), path_of("path", path)))

    def __repr__(self):
        return f"Plan(ranks={self.ranks}, layers={self.layers}, heads={self.heads}, tokens={self.tokens})"


def _strategy_text(strategy):
    text = ffi.new("char[]", lib.TESS_STRATEGY_TEXT)
    lib.tess_strategy_format(ffi.new("tess_strategy *", strategy), text)
    return ffi.string(text).decode()


# ---- exchange --------------------------------------------------------------------------------------------------------

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
    heads: list
    step: list


class _Rows(dict):
    """(send_index, recv_index, send_rows, recv_rows) by name, made when first asked for."""

    def __init__(self, pointer, ranks):
        super().__init__()
        self._p, self._ranks = pointer, ranks

    def __missing__(self, name):
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

    def __init__(self, plan, layer, rank, bounds, bounds_k=None):
        q = integers("bounds", bounds)
        k = q if bounds_k is None else integers("bounds_k", bounds_k)
        for name, array in (("bounds", q), ("bounds_k", k)):
            if len(array) != plan.ranks + 1:
                raise ArgumentError(f"{name} has {len(array)} elements, must have {plan.ranks + 1}: ranks + 1")
        work = plan._work
        if work != NULL:
            known = ffi.new("tess_work_info *")
            check(lib.tess_work_query(work, known))
            work = work if known.masks else NULL
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

    def _read_slots(self):
        first, n = ffi.new("const tess_slot **"), ffi.new("int64_t *")
        check(lib.tess_exchange_slots(self._p, first, n))
        return [Slot(s.head, copy_of(s.q_ids, s.n_q, np.int32), copy_of(s.k_ids, s.n_k, np.int32), s.q_place, s.q_rows,
                     s.k_place, s.k_rows) for s in (first[0][i] for i in range(n[0]))]

    def _read_ring(self):
        view = ffi.new("tess_ring_view *")
        check(lib.tess_exchange_ring(self._p, view))
        steps = [RingStep(s.part, copy_of(s.k_ids, s.n_k, np.int32), s.rows, bool(s.needed), bool(s.passes))
                 for s in (view.step[i] for i in range(view.steps))]
        return Ring(view.steps, view.next, view.previous, copy_of(view.heads, view.n_heads, np.int32).tolist(), steps)

    def selection(self, selection, slot, step=None):
        """The part of a Selection that slot number `slot` computes (of a ring: at the step), in packed order, one head."""
        if not isinstance(selection, Selection):
            raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a Selection")
        return Selection(make("tess_selection", lib.tess_exchange_selection, context(), self._p, selection._p,
                              integer("slot", slot, -2**31, 2**31 - 1), integer("step", step or 0, -2**31, 2**31 - 1)))


def random_normal(seed, stream, n, index=0):
    """n normal numbers, mean 0 and variance 1, float32: numbers index, index + 1, ... of the stream (seed, stream), as the
    command draws them on every machine."""
    out = np.empty(integer("n", n, 0, 2**62), np.float32)
    check(lib.tess_random_normal(integer("seed", seed, 0, 2**64 - 1), integer("stream", stream, 0, 2**64 - 1),
                                 integer("index", index, 0, 2**64 - 1), floats(out), len(out)))
    return out
