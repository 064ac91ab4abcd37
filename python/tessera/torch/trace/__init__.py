# SPDX-License-Identifier: Apache-2.0
"""__init__.py - tessera.torch.trace: rank r of N of a PyTorch program in one process: what it would send, compute and hold.

    summary = tessera.torch.trace(build, rank=0, world_size=8, out="rank0.json")
    python -m tessera.torch.trace --rank 3 --world-size 8 --out rank3.json -- train.py ARGS

The package is a function, too. docs/pytorch.md is the guide, docs/formats.md has the file. The way a record takes:

    _player.py     fake process group, hooks, and everything as it was afterwards
    _mode.py       the dispatch mode: operators (_operators.py), collectives (_collectives.py), storages and memory
                   (_storages.py), values of other ranks that the host reads (_received.py)
    _ddp.py, _kernels.py, _compiled.py, _cuda.py, _versions.py
                   DDP's reducer for fake tensors, CUDA's operators on a CPU, regions of torch.compile, scripts that ask for a
                   GPU where there is none, and versions of PyTorch
    _run.py        a step that a function builds; __main__.py: an unmodified script (_script.py), several ranks (_ranks.py)
    _file.py       the trace file, version 2; _summary.py: its numbers; _patches.py: what is other in PyTorch meanwhile
"""
import sys
import types

from . import _versions

if _versions.sentence() is not None:      # before what imports PyTorch's inner modules
    raise ImportError(_versions.sentence())

from ._error import TraceError
from ._run import trace
from ._summary import Summary

__all__ = ["Summary", "TraceError", "trace"]


class _Module(types.ModuleType):
    """`tessera.torch.trace` is a module, because `python -m` needs one, and a function, because people call it."""

    def __call__(self, *args, **kwargs):
        return trace(*args, **kwargs)


sys.modules[__name__].__class__ = _Module
