# SPDX-License-Identifier: Apache-2.0
"""_received.py - values that came from other ranks and steer the program.

A storage that a collective wrote is received, and so is what operators compute from it; a gather of parameters alone is not,
because a rank's own part stands for the others' as well as any weights do, nor is what an optimiser writes. Where the host reads
a received value (item, bool, nonzero, masks, repeat_interleave, tolist, numpy) the rest of the record is that of one of many
possible runs: a warning with file and line.
"""
import functools
import os
import sys

import torch

from ._patches import put

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

# Operators whose result has sizes that depend on values, or that give a value to the host.
_READS = {"_local_scalar_dense": "item", "nonzero": "nonzero", "nonzero_static": "nonzero", "masked_select": "masked_select",
          "is_nonzero": "bool", "equal": "equal", "_unique2": "unique", "unique_dim": "unique", "unique_consecutive": "unique",
          "bincount": "bincount"}


def place():
    """file:line of the innermost frame outside of PyTorch and of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _HERE, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown place"


_NO_VALUE = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedFakeTensorException")


def no_value(error):
    """The sentence of an error of PyTorch about a value that a fake tensor does not have; None of other errors."""
    if type(error).__name__ not in _NO_VALUE and "not supported for tensor subclasses" not in str(error):
        return None
    where, trace = "an unknown place", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((_TORCH, _HERE, "<")):
            where = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{where}: the program reads a value, and fake tensors have none; device cpu plays it"


def of_engine():
    """Whether PyTorch's own code reads, called by the backward pass and not by a program: DDP, for parameters that no rank used."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


def _mask(tensors):
    return "a mask" if any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:]) else None


def _repeat(tensors):
    return "repeat_interleave" if tensors and not tensors[-1].is_floating_point() else None


def host_read(operator):
    """None for an operator that reads no values on the host; else a function of its tensors that says how, or None."""
    if operator.space != "aten":
        return None
    if operator.short in _READS:
        return lambda tensors, how=_READS[operator.short]: how
    if operator.short == "repeat_interleave":
        return _repeat
    if operator.short in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
        return _mask
    return None


def watch(stack, noted):
    """Until the stack is left noted(tensor, how) hears of tolist and numpy first, which no dispatch mode sees on a CPU."""
    def told(original, how):
        @functools.wraps(original)
        def method(tensor, *args, **kwargs):
            noted(tensor, how)
            return original(tensor, *args, **kwargs)
        return method
    for name, how in (("tolist", "tolist"), ("numpy", "numpy"), ("__array__", "numpy")):
        put(stack, torch.Tensor, name, told(getattr(torch.Tensor, name), how))
