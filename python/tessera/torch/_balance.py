# SPDX-License-Identifier: Apache-2.0
"""_balance.py - an order of heads that gives every rank as many heads and nearly as much work."""
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._lib import NULL, ArgumentError, check, context, copy_of, ffi, int64s, lib, make
from ._library import define

_SCALE = 1 << 30  # of the largest cost: costs become integers, on which all ranks decide alike


def _groups(weights: np.ndarray, ranks: int) -> np.ndarray:
    """(heads): the rank of each head by the planner's refined equal heads."""
    work = ffi.gc(make("tess_work", lib.tess_work_from_weights, context(1), int64s(weights), 1, len(weights), 1), lib.tess_work_destroy)
    opts = ffi.new("tess_plan_opts *")
    opts.ranks = opts.strategy.ulysses = ranks
    opts.strategy.method = lib.TESS_PLAN_REFINED
    opts.head_dim, opts.element_bytes, opts.equal_heads, opts.whole_heads = 128, 2, 1, 1
    plan = ffi.gc(make("tess_plan", lib.tess_plan_create, context(1), work, NULL, opts), lib.tess_plan_destroy)
    layer = ffi.new("tess_plan_layer *")
    check(lib.tess_plan_layer_view(plan, 0, layer))
    return copy_of(layer.head_group, len(weights), np.int32)


def _balanced(cost: Tensor, world_size: int) -> Tensor:
    if cost.dim() != 1:
        raise ArgumentError(f"cost has the shape {tuple(cost.shape)}, must be (heads)")
    heads = cost.shape[0]
    if world_size < 1 or heads % world_size:
        raise ArgumentError(f"world_size is {world_size}, must divide the {heads} heads")
    costs = cost.detach().to("cpu", torch.float64).numpy()
    if not np.isfinite(costs).all() or (costs < 0).any():
        raise ArgumentError("cost has negative or infinite numbers, must be finite and 0 or more")
    largest = costs.max(initial=0.0)
    weights = np.ones(heads, np.int64) if largest == 0 else np.rint(costs / largest * _SCALE).astype(np.int64)
    return torch.from_numpy(np.argsort(_groups(weights, world_size), kind="stable")).to(cost.device)


_head_perm = define("head_perm(Tensor cost, int world_size) -> Tensor", _balanced,
                    lambda cost, world_size: cost.new_empty(cost.shape, dtype=torch.long))


def compute_perm(cost: Tensor, world_size: int) -> Tensor:
    """The permutation that groups heads into world_size runs of as many heads and nearly equal cost.

    cost: (heads), the work of each head, of any unit and dtype. Returns int64 (heads): rank r computes the heads
    perm[r * heads // world_size : (r + 1) * heads // world_size]. All ranks with the same costs get the same order.
    Takes the place of xDiT's function of the same name and signature; torch.compile traces it as one operator.

    >>> import torch, tessera.torch
    >>> sorted(tessera.torch.compute_perm(torch.tensor([4.0, 1.0, 2.0, 3.0]), 2)[:2].tolist())
    [0, 1]
    """
    return _head_perm(cost, world_size)
