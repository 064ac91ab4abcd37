# SPDX-License-Identifier: Apache-2.0
"""_sharding.py - sequence sharding of a model of diffusers, by diffusers' own hooks.

A model's `_cp_plan` says where the sequence is split (after RoPE, before the first block) and gathered (after proj_out).
diffusers' hooks find those tensors; here they are cut at any bounds, over any process group and device. diffusers' own
`enable_parallelism` needs a GPU, lengths that divide or NCCL, and a mesh of all processes.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from diffusers.hooks import HookRegistry
from diffusers.hooks.context_parallel import (ContextParallelGatherHook, ContextParallelSplitHook, _get_submodule_by_name)
from torch import Tensor, nn

_NAME = "tessera_sharding---{}"


class _Gather(torch.autograd.Function):
    """The rows of all ranks in order; backward takes the own rows of the gradient, so that gradients of a loss that every
    rank computes over the whole output are to be summed over ranks."""

    @staticmethod
    def forward(ctx, rows: Tensor, dim: int, bounds: Sequence[int], group) -> Tensor:
        rank = dist.get_rank(group)
        ctx.dim, ctx.begin, ctx.rows = dim, bounds[rank], rows.shape[dim]
        sizes = [end - begin for begin, end in zip(bounds, bounds[1:])]
        rows = rows.movedim(dim, 0)
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])  # gloo gathers equal shapes alone
        padded[:len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([part[:n] for part, n in zip(parts, sizes)]).movedim(0, dim)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return gradient.narrow(ctx.dim, ctx.begin, ctx.rows), None, None, None


class _SplitHook(ContextParallelSplitHook):
    def __init__(self, metadata, bounds: Sequence[int], rank: int):
        super().__init__(metadata, None)  # type: ignore[arg-type]  # the configuration is for diffusers' own collectives
        self.bounds, self.rank = bounds, rank

    def _prepare_cp_input(self, x: Tensor, cp_input) -> Tensor:
        """The own rows of x; x itself where it has no sequence, such as a timestep for each sample."""
        if cp_input.expected_dims is not None and x.dim() != cp_input.expected_dims:
            return x
        if x.shape[cp_input.split_dim] != self.bounds[-1]:
            raise ValueError(f"the sequence has {x.shape[cp_input.split_dim]} tokens, must have the {self.bounds[-1]} of the plan")
        begin, end = self.bounds[self.rank], self.bounds[self.rank + 1]
        return x.narrow(cp_input.split_dim, begin, end - begin)


class _GatherHook(ContextParallelGatherHook):
    def __init__(self, metadata, bounds: Sequence[int], group):
        super().__init__(metadata, None)  # type: ignore[arg-type]  # the configuration is for diffusers' own collectives
        self.bounds, self.group = bounds, group

    def post_forward(self, module: nn.Module, output: Tensor) -> Tensor:
        metadata: Any = self.metadata
        return _Gather.apply(output, metadata[0].gather_dim, self.bounds, self.group)


def _places(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """(name, module, what is split or gathered there). Text is left whole: cross attention runs on every rank."""
    for name, what in model._cp_plan.items():
        if isinstance(what, dict):
            what = {key: value for key, value in what.items() if key != "encoder_hidden_states"}
        if what:
            yield name, _get_submodule_by_name(model, name), what


def install(model: Any, bounds: Sequence[int], group: Optional[dist.ProcessGroup]) -> None:
    """Splits the sequence of a model's calls: rank r of the group computes the tokens bounds[r]..bounds[r + 1] - 1."""
    rank, bounds = dist.get_rank(group), [int(b) for b in bounds]
    for name, module, what in _places(model):
        hook = _SplitHook(what, bounds, rank) if isinstance(what, dict) else _GatherHook([what], bounds, group)
        HookRegistry.check_if_exists_or_initialize(module).register_hook(hook, _NAME.format(name))


def remove(model: Any) -> None:
    """Removes what install has put there."""
    for name, module, _ in _places(model):
        HookRegistry.check_if_exists_or_initialize(module).remove_hook(_NAME.format(name))
