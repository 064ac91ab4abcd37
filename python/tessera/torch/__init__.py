# SPDX-License-Identifier: Apache-2.0
"""__init__.py - tessera.torch: sparse attention, plans and selections for PyTorch.

    sparse_attention, handle    exact sparse attention with gradients; torch.ops.tessera.attend, on GPUs attend_gpu
    select, backend             the selection on GPUs; which kernels run there, and why
    to_flex, FlexMask           selections for FlexAttention
    PlanExecutor                attention of one layer over the ranks of torch.distributed, by a plan
    compute_perm                balanced order of heads, as xDiT's head balance calls it
    DensityRecorder             the density CSV that `tessera plan` reads
    trace                       rank r of N of a program in one process, for `tessera simulate --trace`

docs/python.md is the guide, docs/pytorch.md that of trace, docs/gpu.md that of GPUs. Nothing here has been run on a GPU.
"""
from .. import _lib  # first: its sentences about the package come before those about torch
from ._balance import compute_perm
from ._density import DensityRecorder
from ._executor import PlanExecutor
from ._flex import FlexMask, flex_kernel, to_flex
from ._gpu_operator import backend, select
from ._handle import handle
from ._operator import sparse_attention

__all__ = ["DensityRecorder", "FlexMask", "PlanExecutor", "backend", "compute_perm", "flex_kernel", "handle", "select", "sparse_attention",
           "to_flex", "trace"]


def __getattr__(name):
    """trace is imported when it is asked for: it needs torch.distributed."""
    if name != "trace":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    return importlib.import_module(".trace", __name__)
