# SPDX-License-Identifier: Apache-2.0
"""_operators.py - what an operator is: its name, whether it computes, what it reads and writes, FLOP and bytes."""
import torch
from torch.utils.flop_counter import flop_registry

# Operators without a kernel besides views: they reserve memory, or ask a tensor for what it is.
_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_", "lift_fresh", "detach",
            "detach_", "_local_scalar_dense", "is_same_size", "is_pinned", "size", "stride", "sym_size", "alias", "requires_grad_",
            "record_stream", "_unsafe_view", "is_nonzero"}

# Operators that write an argument without saying so in their schema, and its position.
_WRITES = {"fsdp::all_gather_copy_in": [1]}

_NAMES = {torch.float32: "float", torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16", torch.int64: "long",
          torch.int32: "int", torch.int16: "short", torch.int8: "char", torch.uint8: "byte", torch.bool: "bool"}


def dtype_name(dtype):
    return _NAMES.get(dtype, str(dtype).replace("torch.", ""))


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


class Operator:
    """What the schema of a function says; made once for each."""
    __slots__ = ("name", "space", "skip", "written", "formula", "short", "causal", "quiet")

    def __init__(self, func):
        schema = func._schema
        self.space, _, self.short = schema.name.partition("::")
        self.name = self.short if self.space == "aten" else schema.name
        self.written = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.written = _WRITES.get(schema.name, self.written)
        view = not self.written and any(r.alias_info is not None for r in schema.returns)
        self.quiet = self.space in ("prim", "profiler")   # passed on without a look at tensors
        self.skip = view or self.space == "aten" and self.short in _NOTHING
        self.causal = next((i for i, a in enumerate(schema.arguments) if a.name == "is_causal"), None)
        self.formula = flop_registry.get(func.overloadpacket) if hasattr(func, "overloadpacket") else None

    def written_names(self, func):
        return [func._schema.arguments[i].name for i in self.written]

    def flop(self, args, kwargs, result):
        if self.formula is None:
            return 0
        return int(self.formula(*args, **kwargs, out_val=result))


_known = {}


def operator_of(func):
    found = _known.get(func)
    if found is None:
        found = _known[func] = Operator(func)
    return found


def tensors_of(value, found):
    """Appends the tensors of nested lists and tuples; without pytree, which is slow."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            tensors_of(item, found)
    return found
