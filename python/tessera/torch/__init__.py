# SPDX-License-Identifier: Apache-2.0
"""__init__.py - tessera.torch: sparse attention, plans and selections for PyTorch.

    sparse_attention, handle    exact block-sparse attention with gradients; torch.ops.tessera.attend
    to_flex, FlexMask           selections for FlexAttention
    PlanExecutor                attention of one layer over the ranks of torch.distributed, by a plan
    compute_perm                balanced order of heads, as xDiT's head balance calls it
    DensityRecorder             the density CSV that `tessera plan` reads

docs/python.md is the guide. Nothing here has been run on a GPU.
"""
from .. import _lib  # first: its sentences about the package come before those about torch
from ._balance import compute_perm
from ._density import DensityRecorder
from ._executor import PlanExecutor
from ._flex import FlexMask, flex_kernel, to_flex
from ._operator import handle, sparse_attention

__all__ = ["DensityRecorder", "FlexMask", "PlanExecutor", "compute_perm", "flex_kernel", "handle", "sparse_attention", "to_flex"]
