# SPDX-License-Identifier: Apache-2.0
"""_executor.py - attention of one layer over the ranks of torch.distributed, by a plan.

    rows of q --all-to-all--> packed queries --+
    rows of k, v --all-to-all--> packed keys --+-- attention by shares --> packed o --all-to-all--> rows of o
                  (a ring: one all-to-all with a single peer for each step)

Everything is torch.distributed.nn.functional.all_to_all_single, whose backward is the opposite all-to-all: autograd
returns the gradients, and sums those of keys along a ring. A rank takes part in every one of them in both directions,
also where it has nothing to compute. The batch is folded into the row, so that all samples are one message.
"""
from __future__ import annotations

import math
from typing import Callable, Iterator, Optional, Sequence, Union

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import Tensor

from .._lib import ArgumentError, ArgumentTypeError
from .._plan import Plan
from .._selection import Selection
from ._flex import flex_kernel
from ._library import untraced
from ._handle import handle
from ._operator import attend as attend_operator

Attend = Callable[[int, np.ndarray, np.ndarray, Tensor, Tensor, Tensor], Union[Tensor, "tuple[Tensor, Tensor]"]]


class _Anchor(torch.autograd.Function):
    """The first tensor, with the others as its inputs: their gradients are zeros, but their backward passes run."""

    @staticmethod
    def forward(ctx, tensor, *others):
        ctx.others = [(x.shape, x.dtype, x.device) for x in others]
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return (gradient, *(torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.others))


class _Route:
    """One exchange of rows: which rows are sent, how many to and from each rank, and where received rows go."""

    def __init__(self, rows: tuple, rank: int, even: bool):
        send_index, recv_index, self.sends, self.recvs = rows
        self.sends, self.recvs = [int(n) for n in self.sends], [int(n) for n in self.recvs]
        order = np.empty(len(recv_index), np.int64)
        order[recv_index] = np.arange(len(recv_index))
        self.away = sum(self.sends) - self.sends[rank]
        self.splits = (None, None) if even else (self.recvs, self.sends)
        self._index = {torch.device("cpu"): (torch.from_numpy(np.ascontiguousarray(send_index)), torch.from_numpy(order))}

    def index(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(rows to send, order of received rows) on the device."""
        if device not in self._index:
            send, order = self._index[torch.device("cpu")]
            self._index[device] = send.to(device), order.to(device)
        return self._index[device]


def _merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attention over two sets of keys as one; either may have none (lse -inf)."""
    (o1, lse1), (o2, lse2) = first, second
    top = torch.maximum(lse1, lse2).detach()
    top = torch.where(top.isinf(), torch.zeros_like(top), top)
    w1, w2 = torch.exp(lse1 - top), torch.exp(lse2 - top)
    total = w1 + w2
    none = total == 0
    total = torch.where(none, torch.ones_like(total), total)
    o = (w1 / total)[..., None] * o1 + (w2 / total)[..., None] * o2
    return o, torch.where(none, torch.full_like(top, -math.inf), top + torch.log(total))


def _join(parts: list[Selection], batch: int) -> Selection:
    """Selections of one head each, of batch 1 or `batch` and the same blocks, as one with a head for each."""
    if len(parts) == 1 and parts[0].shape[0] == batch:
        return parts[0]
    lists = [part.lists() for part in parts]
    n_q = parts[0].shape[2]
    counts, indices = [], []
    for b in range(batch):
        for part, (offsets, units) in zip(parts, lists):
            first = (b if part.shape[0] > 1 else 0) * n_q
            counts.append(np.diff(offsets[first:first + n_q + 1]))
            indices.append(units[offsets[first]:offsets[first + n_q]])
    bounds_q, bounds_k = parts[0].bounds
    seq_q, seq_k = parts[0].tokens
    return Selection.from_lists(np.concatenate([[0], np.cumsum(np.concatenate(counts))]), np.concatenate(indices), batch=batch,
                                heads=len(parts), seq_q=seq_q, seq_k=seq_k, q_block=bounds_q, k_block=bounds_k)


def default_bounds(tokens: int, ranks: int) -> list[int]:
    """Where each rank's rows begin: as even as can be, the first ranks one row more, as Tensor.tensor_split does."""
    each, more = divmod(tokens, ranks)
    return [rank * each + min(rank, more) for rank in range(ranks + 1)]


class PlanExecutor:
    """Attention of one layer of a plan over the ranks of a process group, forward and backward.

    plan: for as many ranks as the group has. bounds: (ranks + 1), rank r owns the tokens bounds[r]..bounds[r + 1] - 1 of
    all heads; None for even shards, the first ones a row longer where tokens do not divide. selection: of the whole
    layer, (1 or batch, heads, ...) in the plan's blocks; None computes every pair.

        executor = PlanExecutor(plan, layer, selection=selection)
        o = executor(q, k, v)                 # (batch, own rows, heads, head_dim) each

    All ranks call it, and all run backward, or none. attend(head, q_ids, k_ids, q, k, v) -> (o, lse), given in place of
    the kernel, gets one share: q (batch, rows, head_dim) of the query blocks q_ids against the keys of the key blocks
    k_ids; lse natural, (batch, rows). The default is this package's operator on CPUs and FlexAttention on GPUs, which get
    all shares of one shape in one call. With return_lse the owner gets lse too, (batch, own rows, heads) float32.

    bytes_sent: what this rank sent to others in its last forward pass; the largest of all ranks is plan.bytes(layer)
    times the batch, for a plan with this head_dim and element_bytes.
    """

    def __init__(self, plan: Plan, layer: int, group: Optional[dist.ProcessGroup] = None,
                 bounds: Optional[Sequence[int]] = None, selection: Optional[Selection] = None):
        self.group = group
        self.rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        if plan.ranks != ranks:
            raise ArgumentError(f"plan is for {plan.ranks} ranks, must be for the {ranks} of the process group")
        self.bounds = np.asarray(default_bounds(plan.tokens, ranks) if bounds is None else bounds, np.int64)
        if plan.degrees(layer)[2] > 1 and not plan.has_masks:
            raise ArgumentError(f"layer {layer} is {plan.strategy(layer)}, and a selective layer needs the masks it was planned for: "
                                "plan from selections, or with whole_keys=2")
        self.exchange = plan.exchange(layer, self.rank, self.bounds)
        self.plan, self.layer, self.heads = plan, layer, plan.heads
        even = len(set(np.diff(self.bounds).tolist())) == 1 and self._is_permutation()
        self._q, self._kv, self._o = (_Route(self.exchange.rows[name], self.rank, even) for name in ("Q", "KV", "O"))
        if selection is not None and not isinstance(selection, Selection):
            raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection or None")
        self.selection = selection
        self._handles: dict[tuple[int, int], list[tuple]] = {}
        self.bytes_sent = 0

    def _is_permutation(self) -> bool:
        try:
            self.plan.head_perm(self.layer)
        except ValueError:
            return False
        return True

    # ---- rows ---------------------------------------------------------------------------------------------------

    def _move(self, rows: Tensor, route: _Route) -> Tensor:
        """Sends rows (n, width) along a route."""
        send, order = route.index(rows.device)
        self.bytes_sent += route.away * rows.shape[1] * rows.element_size()
        received = rows.new_empty(sum(route.recvs), rows.shape[1])
        recvs, sends = route.splits
        return dist_nn.all_to_all_single(received, rows[send], recvs, sends, group=self.group)[order]

    def _pass_on(self, keys: Tensor, step: int) -> Tensor:
        """The keys that the rank holds at the next step of the ring."""
        ring = self.exchange.ring
        now, then = ring.step[step], ring.step[step + 1]
        sends, recvs = [0] * self.exchange.ranks, [0] * self.exchange.ranks
        if now.passes:
            sends[ring.next] = keys.shape[0]
        if then.needed or then.passes:
            recvs[ring.previous] = then.rows * len(ring.heads)
        self.bytes_sent += sum(sends) * keys.shape[1] * keys.element_size()
        received = keys.new_empty(sum(recvs), keys.shape[1])
        return dist_nn.all_to_all_single(received, keys if now.passes else keys[:0], recvs, sends, group=self.group)

    # ---- shares -------------------------------------------------------------------------------------------------

    def _shares(self, step: int) -> Iterator[tuple]:
        """(slot number, slot, key blocks, place of the keys, rows of the keys) of what is computed at a step."""
        ring = self.exchange.ring
        for number, slot in enumerate(self.exchange.slots):
            if ring.steps == 1:
                if slot.k_rows and slot.q_rows:
                    yield number, slot, slot.k_ids, slot.k_place, slot.k_rows
            elif ring.step[step].needed and ring.step[step].rows and slot.q_rows:
                at = ring.step[step]
                yield number, slot, at.k_ids, ring.heads.index(slot.head) * at.rows, at.rows

    def _groups(self, step: int, batch: int) -> list[tuple]:
        """Shares of one shape together: lists of shares, with the handle of their selection."""
        key = step, batch
        found = self._handles.get(key)
        if found is None:
            groups: dict[tuple, list[tuple]] = {}
            for share in self._shares(step):
                number, slot, _, _, k_rows = share
                part, shape = None, (slot.q_rows, k_rows)
                if self.selection is not None:
                    part = self.exchange.selection(self.selection, number, step if self.exchange.ring.steps > 1 else None)
                    shape += tuple(map(bytes, part.bounds))
                groups.setdefault(shape, []).append((share, part))
            found = []
            for members in groups.values():
                selection = None if self.selection is None else _join([part for _, part in members], batch)
                found.append(([share for share, _ in members], selection, handle(selection)))
            self._handles[key] = found
        return found

    @staticmethod
    def _take(rows: Tensor, places: list[int], n: int, batch: int) -> Tensor:
        """Shares of n rows at these places as (batch, shares, n, head_dim)."""
        if all(place == places[0] + i * n for i, place in enumerate(places)):
            taken = rows[places[0]:places[0] + n * len(places)]
        else:
            taken = torch.cat([rows[place:place + n] for place in places])
        return taken.reshape(len(places), n, batch, -1).permute(2, 0, 1, 3)

    def _compute(self, queries, keys, step, batch, results, kernel):
        """Adds attention to the keys of a step to the results of each slot, each (o, lse) (batch, rows, ...)."""
        width = keys.shape[1] // 2
        for shares, selection, number in self._groups(step, batch):
            _, slot, _, _, k_rows = shares[0]
            k_places = [share[3] for share in shares]
            q = self._take(queries, [share[1].q_place for share in shares], slot.q_rows, batch)
            k = self._take(keys[:, :width], k_places, k_rows, batch)
            v = self._take(keys[:, width:], k_places, k_rows, batch)
            o, lse = kernel(q, k, v, selection, number)
            for i, share in enumerate(shares):
                part = o[:, i], lse[:, i]
                results[share[0]] = _merge(results[share[0]], part) if share[0] in results else part

    def _compute_by(self, attend, queries, keys, step, batch, results):
        """The same by a kernel of the caller, share by share."""
        width = keys.shape[1] // 2
        for number, slot, k_ids, k_place, k_rows in self._shares(step):
            q = self._take(queries, [slot.q_place], slot.q_rows, batch)[:, 0]
            k, v = (self._take(keys[:, cut], [k_place], k_rows, batch)[:, 0] for cut in (slice(width), slice(width, None)))
            part = attend(slot.head, slot.q_ids, k_ids, q, k, v)
            if not isinstance(part, tuple):
                if self.exchange.ring.steps > 1:
                    raise ArgumentTypeError("attend returned o alone, must return (o, lse) for a ring: plan with whole_keys=1 for "
                                            "kernels without lse")
                part = part, None
            results[number] = _merge(results[number], part) if number in results else part

    @staticmethod
    def _kernel(q, k, v, selection, number):
        if q.device.type == "cpu":
            return attend_operator(q.float(), k.float(), v.float(), number, 1 / math.sqrt(q.shape[-1]), 0)
        return flex_kernel(q, k, v, selection, train=torch.is_grad_enabled())

    # ---- the layer ----------------------------------------------------------------------------------------------

    @untraced  # collectives of uneven splits: a compiled model has a graph break here
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, attend: Optional[Attend] = None,
                 return_lse: bool = False) -> Union[Tensor, tuple[Tensor, Tensor]]:
        rows = int(self.bounds[self.rank + 1] - self.bounds[self.rank])
        if q.dim() != 4 or q.shape[1:3] != (rows, self.heads):
            raise ArgumentError(f"q has the shape {tuple(q.shape)}, must be (batch, {rows}, {self.heads}, head_dim) on rank {self.rank}")
        if k.shape != q.shape or v.shape != q.shape:
            raise ArgumentError(f"k and v have the shapes {tuple(k.shape)} and {tuple(v.shape)}, must have that of q, {tuple(q.shape)}")
        batch, _, heads, dim = q.shape
        self.bytes_sent = 0

        def fold(x):
            return x.permute(1, 2, 0, 3).reshape(rows * heads, batch * dim)

        queries = self._move(fold(q), self._q)
        keys = self._move(torch.cat([fold(k), fold(v)], 1), self._kv)
        received, results = [queries, keys], dict[int, tuple]()
        for step in range(self.exchange.ring.steps):
            if attend is None:
                self._compute(queries, keys, step, batch, results, self._kernel)
            else:
                self._compute_by(attend, queries, keys, step, batch, results)
            if step + 1 < self.exchange.ring.steps:
                keys = self._pass_on(keys, step)
                received.append(keys)

        parts, lses = [], []
        for number, slot in enumerate(self.exchange.slots):
            o, lse = results.get(number, (None, None))
            parts.append(q.new_zeros(slot.q_rows, batch * dim) if o is None else
                         o.to(q.dtype).transpose(0, 1).reshape(slot.q_rows, batch * dim))
            if return_lse:
                lses.append(torch.full((slot.q_rows, batch), -math.inf, device=q.device) if lse is None else lse.float().transpose(0, 1))
        packed = torch.cat([*parts, q.new_zeros(0, batch * dim)])
        packed = _Anchor.apply(packed, *received)
        o = self._move(packed, self._o).reshape(rows, heads, batch, dim).permute(2, 0, 1, 3)
        if not return_lse:
            return o
        packed = torch.cat([*lses, torch.zeros(0, batch, device=q.device)])
        return o, self._move(_Anchor.apply(packed, *received), self._o).reshape(rows, heads, batch).permute(2, 0, 1)
