# SPDX-License-Identifier: Apache-2.0
"""_collectives.py - collectives of torch.distributed as the dispatcher sees them, and their answers without peers.

c10d:: operators (torch.distributed's own calls, DDP's C++ reducer, FSDP2, pipelines) have buffers, a process group and give a
Work; _c10d_functional:: operators (DTensor, context parallelism) have a group's name and give tensors. A gather's answer is
this rank's own part as many times as the group has ranks, a received message zeros.
"""
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _Work

from ._operators import bytes_of, dtype_name, tensors_of

# name: (operation, positions of the outputs, of the inputs, of the process group, of the root or the peer)
_C10D = {
    "allreduce_": ("all_reduce", 0, 0, 1, None),
    "allreduce_coalesced_": ("all_reduce", 0, 0, 1, None),
    "broadcast_": ("broadcast", 0, 0, 1, None),
    "reduce_": ("reduce", 0, 0, 1, None),
    "allgather_": ("all_gather", 0, 1, 2, None),
    "_allgather_base_": ("all_gather", 0, 1, 2, None),
    "allgather_coalesced_": ("all_gather", 0, 1, 2, None),
    "allgather_into_tensor_coalesced_": ("all_gather", 0, 1, 2, None),
    "reduce_scatter_": ("reduce_scatter", 0, 1, 2, None),
    "_reduce_scatter_base_": ("reduce_scatter", 0, 1, 2, None),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 0, 1, 2, None),
    "alltoall_": ("all_to_all", 0, 1, 2, None),
    "alltoall_base_": ("all_to_all", 0, 1, 2, None),
    "gather_": ("gather", 0, 1, 2, None),
    "gather_into_tensor_": ("gather", 0, 1, 2, None),
    "scatter_": ("scatter", 0, 1, 2, None),
    "send": ("send", None, 0, 1, 2),
    "recv_": ("receive", 0, None, 1, 2),
}
_FUNCTIONAL = {
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce", "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast", "broadcast_": "broadcast",
}
_QUIET = {"barrier", "monitored_barrier_", "check_for_nan"}


class Call:
    """A collective: operation, ranks of its group, buffers."""
    __slots__ = ("op", "ranks", "inputs", "outputs", "peer", "returns_work", "name")


def _ranks_of(group):
    return list(dist.get_process_group_ranks(group))


def call_of(space, short, args, kwargs, result=None):
    """The Call of an operator of these namespaces; None: it moves no data."""
    call = Call()
    call.peer, call.name = None, f"{space}::{short}"
    if space == "c10d":
        if short not in _C10D:
            return None
        call.op, outputs, inputs, group, peer = _C10D[short]
        group = dist.ProcessGroup.unbox(args[group])
        call.ranks = _ranks_of(group)
        call.outputs = tensors_of(args[outputs], []) if outputs is not None else []
        call.inputs = tensors_of(args[inputs], []) if inputs is not None else []
        call.peer = call.ranks[args[peer]] if peer is not None else None
        call.returns_work = True
        return call
    if short not in _FUNCTIONAL:
        return None
    call.op = _FUNCTIONAL[short]
    name = next((a for a in reversed(args) if isinstance(a, (str, dist.ProcessGroup))), None) or kwargs.get("group_name")
    group = dist.distributed_c10d._resolve_process_group(name) if isinstance(name, str) else name
    call.ranks = _ranks_of(group)
    call.inputs = tensors_of(args[0], [])
    call.outputs = tensors_of(result, [])
    call.returns_work = False
    return call


def is_quiet(space, short):
    return space == "c10d" and short in _QUIET


def is_wait(space, short):
    return space == "_c10d_functional" and short in ("wait_tensor", "wait_tensors", "_wrap_tensor_autograd")


def group_of(ranks):
    """A member of the event: [first, count, stride] where that says it, else the list."""
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if stride > 0 and all(b - a == stride for a, b in zip(ranks, ranks[1:])):
        return {"group": [ranks[0], len(ranks), stride]}
    return {"ranks": list(ranks)}


def arguments(call):
    """Members of the event."""
    buffers = call.inputs or call.outputs
    in_bytes, out_bytes = (sum(bytes_of(t) for t in part) for part in (call.inputs, call.outputs))
    found = {"op": call.op, **group_of(call.ranks), "in_bytes": in_bytes, "out_bytes": out_bytes,
             "dtype": dtype_name(buffers[0].dtype) if buffers else "byte"}
    if call.peer is not None:
        found["peer"] = call.peer
    return found


# ---- answers --------------------------------------------------------------------------------------------------------

def answer(call, rank):
    """Fills the outputs of a c10d call as if every rank had this rank's values."""
    own = call.ranks.index(rank) if rank in call.ranks else 0
    if call.op == "receive":
        for tensor in call.outputs:
            tensor.zero_()
    elif call.op in ("all_gather", "gather"):
        _repeat(call.outputs, call.inputs)
    elif call.op in ("reduce_scatter", "scatter"):
        _part(call.outputs, call.inputs, own, len(call.ranks))
    elif call.op == "all_to_all":
        for out, given in zip(call.outputs, call.inputs):
            n = min(out.numel(), given.numel())
            out.zero_()
            out.view(-1)[:n].copy_(given.reshape(-1)[:n])


def _repeat(outputs, inputs):
    if len(outputs) == len(inputs):
        for out, given in zip(outputs, inputs):
            out.view(-1).view(-1, max(given.numel(), 1))[:] = given.reshape(1, -1) if given.numel() else 0
    else:
        each = len(outputs) // max(len(inputs), 1)
        for i, out in enumerate(outputs):
            given = inputs[i // each]
            n = min(out.numel(), given.numel())
            out.reshape(-1)[:n].copy_(given.reshape(-1)[:n])


def _part(outputs, inputs, own, n):
    if len(inputs) == len(outputs):
        for out, given in zip(outputs, inputs):
            out.view(-1).copy_(given.reshape(-1)[own * out.numel():(own + 1) * out.numel()])
    else:
        each = len(inputs) // max(len(outputs), 1)
        for i, out in enumerate(outputs):
            if each:
                out.copy_(inputs[i * each + own])


class Work(_Work):
    """Done at once; its wait is noted. It holds the tensors until then, because a future must give them.

    released(work): nothing but its owner needs it any more; who takes the future, as DDP does, never waits for the work.
    """

    def __init__(self, tensors, waited, released):
        super().__init__()
        self.tensors, self.waited, self.released, self.future = tensors, waited, released, None

    def wait(self, timeout=None):
        waited, self.waited = self.waited, None
        if waited is not None:
            waited()
        self.released(self)
        self.tensors = None
        return True

    def get_future(self):
        if self.future is None:
            self.future = torch.futures.Future()
            self.future.set_result(self.tensors or [])
            self.released(self)
        return self.future

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def result(self):
        return self.tensors or []

    def synchronize(self):
        self.wait()
