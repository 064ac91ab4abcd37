# SPDX-License-Identifier: Apache-2.0
"""_operators.py - what an operator is: its name, whether it computes, what it reads and writes, FLOP and bytes.

Bytes are those of the memory that a kernel reads and writes once: of every tensor that it reads, of every tensor that it makes,
and of what it changes in place both. Elements of an expanded tensor are one; what is only overwritten is not read; a look-up
reads as much as it gives.
"""
from typing import Dict

import torch
from torch.utils.flop_counter import flop_registry

from . import _received

# Operators without a kernel besides views: they reserve memory, or ask a tensor for what it is.
_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_", "detach_", "lift_fresh",
            "_unsafe_view", "_local_scalar_dense", "is_nonzero", "is_same_size", "is_pinned", "size", "stride", "sym_size",
            "requires_grad_", "record_stream"}

# Operators that write an argument without saying so in their schema, and its position.
_WRITES = {"fsdp::all_gather_copy_in": [1]}

# In-place operators that do not read what they change.
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "trunc_normal_",
               "_foreach_copy_", "_foreach_zero_"}

_NAMES = {torch.float32: "float", torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16", torch.int64: "long",
          torch.int32: "int", torch.int16: "short", torch.int8: "char", torch.uint8: "byte", torch.bool: "bool"}


def dtype_name(dtype):
    return _NAMES.get(dtype, str(dtype).replace("torch.", ""))


def bytes_of(tensor):
    """Of its elements, those that share memory counted once."""
    size = tensor.nbytes
    if size > 4096 and 0 in tensor.stride():
        for n, stride in zip(tensor.shape, tensor.stride()):
            if stride == 0:
                size //= n
    return size


def _sum(tensors):
    return sum(map(bytes_of, tensors))


# What is not the sum of all tensors: (tensors given, made, written in place) -> bytes.
def _look_up(given, made, written):
    return 2 * _sum(made) + _sum(given[1:])


def _made(given, made, written):
    return _sum(made)


def _put(given, made, written):
    return 3 * bytes_of(given[-1]) + _sum(given[1:-1])


_TRAFFIC = {
    "embedding": _look_up, "index": _look_up, "_unsafe_index": _look_up, "index_select": _look_up, "gather": _look_up,
    "zeros_like": _made, "ones_like": _made, "full_like": _made, "rand_like": _made, "randn_like": _made, "new_zeros": _made,
    "new_ones": _made, "new_full": _made,
    # One element for each target, not all of the probabilities; in backward all gradients are written.
    "nll_loss_forward": lambda given, made, written: 2 * bytes_of(given[1]),
    "nll_loss_backward": lambda given, made, written: bytes_of(given[2]) + _sum(made),
    # Values are read, places of as many elements read and written.
    "index_put_": _put, "index_add_": _put, "scatter_add_": _put,
    # This rank's part alone goes into the gather's buffer: what is given besides is the buffer.
    "fsdp::all_gather_copy_in": lambda given, made, written: 2 * bytes_of(made[0]),
}


def _every(given, made, written):
    return _sum(given) + _sum(made)


def _shape(value):
    if isinstance(value, torch.Tensor):
        return value.shape
    return type(value)(map(_shape, value)) if type(value) in (list, tuple) else value


def _fresh(made, written):
    return _sum(t for t in made if not any(t is w for w in written))


def _in_place(given, made, written):
    return _sum(given) + _sum(written) + _fresh(made, written)


def _overwritten(given, made, written):
    return _sum(given) + _fresh(made, written)


class Operator:
    """What the schema of a function says; made once for each."""
    __slots__ = ("func", "name", "space", "view", "skip", "written", "formula", "short", "causal", "quiet", "host", "traffic", "collective")

    def __init__(self, func):
        schema = func._schema
        self.func = func                 # kept, because its id is the key
        self.space, _, self.short = schema.name.partition("::")
        self.collective = self.space in ("c10d", "_c10d_functional")
        self.name = self.short if self.space == "aten" else schema.name
        arguments = [(i, a) for i, a in enumerate(schema.arguments)]
        written = [(i, a) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]
        if self.short.startswith("_fused_"):   # gradients, which a fused optimiser could scale, and does not
            written = [(i, a) for i, a in written if a.name != "grads"]
        only_written = self.short in _OVERWRITES or all(a.is_out for _, a in written)
        self.written = [(i, schema.arguments[i].name) for i in _WRITES.get(schema.name, [i for i, _ in written])]
        gives_alias = any(r.alias_info is not None for r in schema.returns)
        self.quiet = self.space in ("prim", "profiler")   # passed on without a look at tensors
        self.view = gives_alias and not self.written and self.short != "lift_fresh"
        self.skip = self.space == "aten" and self.short in _NOTHING
        self.causal = next((i for i, a in enumerate(schema.arguments) if a.name == "is_causal"), None)
        self.formula = flop_registry.get(func.overloadpacket) if hasattr(func, "overloadpacket") else None
        self.host = _received.host_read(self)
        self.traffic = _TRAFFIC.get(self.name)
        if self.traffic is None:
            self.traffic = _every if not self.written else _overwritten if only_written else _in_place

    def flop(self, args, kwargs, result):
        formula = getattr(self.formula, "__wrapped__", None)
        if formula is None:              # takes tensors
            return int(self.formula(*args, **kwargs, out_val=result))
        return int(formula(*map(_shape, args), **{k: _shape(v) for k, v in kwargs.items()}, out_shape=_shape(result)))

    def changed(self, args, kwargs):
        """Tensors of the arguments that are written."""
        found = []
        for i, name in self.written:
            tensors_of(args[i] if i < len(args) else kwargs.get(name), found)
        return found


_known: Dict[int, "Operator"] = {}


def operator_of(func):
    found = _known.get(id(func))
    if found is None:
        found = _known[id(func)] = Operator(func)
    return found


def tensors_of(value, found):
    """Appends the tensors of nested lists and tuples; without pytree, which is slow."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, torch.Tensor):
                found.append(item)
            elif isinstance(item, (list, tuple)):
                tensors_of(item, found)
    return found
