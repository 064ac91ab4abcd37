# SPDX-License-Identifier: Apache-2.0
"""_received.py - values that came from other ranks and steer the program.

A storage that a collective wrote is received, and so is what operators compute from it; a gather of parameters alone is not,
because a rank's own part stands for the others' as well as any weights do, nor is what an optimiser writes. Where the host reads
a received value (item, bool, nonzero, masks, repeat_interleave, tolist, numpy) the rest of the record is that of one of many
possible runs: a warning with file and line.
"""
import os
import sys

import torch
from torch.overrides import TorchFunctionMode

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


def read_of(operator, tensors):
    """How an operator reads values on the host, or None; tensors: its arguments."""
    if operator.space != "aten":
        return None
    if operator.short in _READS:
        return _READS[operator.short]
    if operator.short == "repeat_interleave" and len(tensors) > 0 and not tensors[-1].is_floating_point():
        return "repeat_interleave"
    if operator.short in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
        if any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:]):
            return "a mask"
    return None


class HostReads(TorchFunctionMode):
    """tolist and numpy on CPU tensors, which no dispatch mode sees."""

    def __init__(self, noted):
        super().__init__()
        self.noted = noted               # noted(tensor, how)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _FUNCTIONS and args and isinstance(args[0], torch.Tensor):
            self.noted(args[0], _FUNCTIONS[func])
        return func(*args, **(kwargs or {}))


_FUNCTIONS = {torch.Tensor.tolist: "tolist", torch.Tensor.numpy: "numpy", torch.Tensor.__array__: "numpy"}
