# SPDX-License-Identifier: Apache-2.0
"""_mode.py - the dispatch mode that answers collectives and records operators.

The whole program runs inside it: construction and warm-up too, for DDP's constructor gathers, and storages must be known from
their birth. Events are kept only in the recorded step.
"""
import sys

import torch
from torch._C import _TorchDispatchModeKey, _get_dispatch_mode as _dispatch_mode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, is_traceable_wrapper_subclass_type

from . import _collectives
from ._error import TraceError
from ._operators import bytes_of, dtype_name, operator_of, tensors_of
from ._received import of_engine, place
from ._storages import ACTIVATIONS, GRADIENTS, OPTIMIZER, PARAMETERS, TEMPORARIES, Storages

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_FAKE = _TorchDispatchModeKey.FAKE
_graph_task = torch._C._current_graph_task_id


class Recorder(TorchDispatchMode):
    def __init__(self, rank, world_size, fake=None, timed=False, strict=False, kernels="cpu"):
        super().__init__()
        self.rank, self.world_size, self.fake, self.timed, self.strict = rank, world_size, fake, timed, strict
        self.kernels = kernels           # whose operators are recorded: of a CPU or of CUDA
        self.storages = Storages()
        self.events = []
        self.warnings = []
        self.recording = False
        self.in_optimizer = False
        self.modules = None              # Modules, in the recorded step
        self.received_read = False       # a received value was read: later sizes may follow from it
        self._plain = {}                 # types of arguments: 1, no wrapper among them
        self._open = {}                  # works that wait for their wait
        self._requests = 0
        self._requested = {}             # storages of functional collectives that wait: the request
        self._timers = []
        self.inside_kernel = False       # in operators that a GPU has as one

    # ---- every operator ----

    @classmethod
    def _should_skip_dynamo(cls):
        return False                     # nothing is compiled in here (_compiled.py): PyTorch need not guard each call

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        plain = self._plain.get(types)
        if plain is None:
            plain = self._plain[types] = not any(is_traceable_wrapper_subclass_type(t) for t in types)
        if not plain:
            return NotImplemented        # wrappers, such as DTensor, call operators on what they hold
        kwargs = kwargs or {}
        if self.inside_kernel:
            return func(*args, **kwargs)
        operator = operator_of(func)
        if operator.collective:
            return self._collective(func, operator, args, kwargs)
        if _dispatch_mode(_FAKE) is not self.fake:
            return func(*args, **kwargs)  # DTensor finds out shapes
        if operator.quiet or operator.view:   # a view computes nothing, and its storage is the one that it looks at
            return func(*args, **kwargs)
        if self.fake is not None and not types and _in_mesh():
            with _disable_current_modes():
                return func(*args, **kwargs)
        return self._operator(func, operator, args, kwargs)

    def _operator(self, func, operator, args, kwargs):
        given = tensors_of(args, [])
        if kwargs:
            tensors_of(list(kwargs.values()), given)
        if operator.host is not None and self.recording:
            how = operator.host(given)
            if how is not None:
                self._host_read(given, how)
        if self.fake is not None and operator.short == "_local_scalar_dense":
            return self._scalar(args[0])
        if self.recording and self.timed:
            result, timer = self._timed(func, args, kwargs)
        else:
            result, timer = func(*args, **kwargs), None
        made = tensors_of(result, [])
        backward = _graph_task() != -1
        storages = self.storages
        storages.kind = OPTIMIZER if self.in_optimizer else TEMPORARIES if backward else ACTIVATIONS
        find, look = storages.find, storages.look
        reads = [find(t) for t in given]
        outputs = [look(t) for t in made]
        if operator.skip:
            self._carry(reads, outputs)
            return result
        changed = ()
        if operator.written:
            changed = operator.changed(args, kwargs)
            written = [look(t) for t in changed]
            written += [e for e in outputs if e not in written]
        else:
            written = [e for e in outputs if e not in reads]
            if not written and outputs:
                return result            # an alias that the schema does not show
        self._carry(reads, written)
        if self.recording:
            event = self._computed(operator.name, given, made, reads, written, operator.traffic(given, made, changed),
                                   operator.flop(args, kwargs, result) if operator.formula is not None else 0)
            at = operator.causal
            if at is not None and (args[at] if at < len(args) else kwargs.get("is_causal", False)):
                event["args"]["causal"] = True
            self._finish(event, backward, timer)
        return result

    def _carry(self, reads, written):
        if self.in_optimizer:
            return
        received, parameters = False, bool(reads)
        for entry in reads:
            if entry.received:
                received = True
            if parameters and not entry.of_parameters and entry.kind != PARAMETERS:
                parameters = False
        for entry in written:
            entry.received = received or entry.received and entry in reads
            entry.of_parameters = parameters

    def _computed(self, name, given, made, reads, written, size, flop):
        first = made[0] if made else given[0] if given else None
        return {"cat": "compute", "name": name, "args": {
            "shapes": [t.shape for t in given], "out": [t.shape for t in made],
            "dtype": dtype_name(first.dtype) if first is not None else "byte", "flop": flop, "bytes": size,
            "reads": _numbers(reads), "writes": _numbers(written)}}

    def _finish(self, event, backward, timer=None):
        args = event["args"]
        args["pass"] = "optimizer" if self.in_optimizer else "backward" if backward else "forward"
        path = "" if self.in_optimizer else self.modules.path(backward)
        if path:
            args["module"] = path
        if timer is not None:
            self._timers.append((args, timer))
        self.events.append(event)

    def kernel(self, name, given, compute, shapes=None):
        """What `compute` makes from the tensors `given`, as one operator of a GPU: what it takes is not looked at."""
        self.inside_kernel = True
        try:
            made = compute()
        finally:
            self.inside_kernel = False
        backward = _graph_task() != -1
        self.storages.kind = TEMPORARIES if backward else ACTIVATIONS
        reads, written = ([self.storages.find(t) for t in part] for part in (given, made))
        self._carry(reads, written)
        if self.recording:
            self._finish(self._computed(name, given, made, reads, written, sum(map(bytes_of, [*given, *made])), 0), backward)
        return made

    def _timed(self, func, args, kwargs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = func(*args, **kwargs)
        end.record()
        return result, (begin, end)

    # ---- reads on the host ----

    def _host_read(self, tensors, how):
        if not any(self.storages.find(t).received for t in tensors) or of_engine():
            return
        self.received_read = True
        self.warn(f"{place()}: {how} reads a value that came from another rank; the record is that of this value")

    def noted(self, tensor, how):
        """tolist and numpy; of wrappers what they hold."""
        if self.recording and not is_traceable_wrapper_subclass_type(type(tensor)):
            self._host_read([tensor], how)

    def warn(self, text):
        if self.strict:
            raise TraceError(text)
        if text not in self.warnings:
            self.warnings.append(text)

    def _scalar(self, tensor):
        """A fake tensor has no value: 1, as the step counter of an optimiser may have."""
        if self.recording and not self.in_optimizer:
            self.warn(f"{place()}: item reads a tensor without a value, 1 is taken")
        return True if tensor.dtype == torch.bool else 1.0 if tensor.dtype.is_floating_point else 1

    # ---- collectives ----

    def _collective(self, func, operator, args, kwargs):
        space, short = operator.space, operator.short
        if _collectives.is_quiet(space, short):
            return None if short != "barrier" else self._work([], None).boxed()
        if _collectives.is_wait(space, short):
            if self.recording and short != "_wrap_tensor_autograd":
                for tensor in tensors_of(args[0], []):
                    self._waited(self._requested.pop(self.storages.find(tensor).number, None))
            return func(*args, **kwargs) if self.fake is None else args[0]
        if space == "c10d":
            call = _collectives.call_of(space, short, args, kwargs)
            if call is None:
                raise TraceError(f"{place()}: torch.distributed's {short} cannot be played by one rank")
            if self.fake is None:
                _collectives.answer(call, self.rank)
            request = self._note(call)
            work = self._work(call.outputs or call.inputs, request).boxed()
            returns = func._schema.returns
            return work if len(returns) == 1 else (args[0], work)
        result = func(*args, **kwargs)
        call = _collectives.call_of(space, short, args, kwargs, result)
        if call is not None:
            self._note(call)
        return result

    def _work(self, tensors, request):
        work = _collectives.Work(list(tensors), lambda: self._waited(request), lambda done: self._open.pop(id(done), None))
        self._open[id(work)] = work
        return work

    def _waited(self, request):
        if self.recording and request is not None:
            self.events.append({"cat": "wait", "name": "wait", "args": {"request": request, "reads": [], "writes": []}})

    def _note(self, call):
        """Keeps a call; the number of its request, None where nothing is recorded."""
        storages = self.storages
        backward = _graph_task() != -1
        storages.kind = TEMPORARIES if backward else ACTIVATIONS
        reads = [storages.find(t) for t in call.inputs]
        written = [storages.find(t) for t in call.outputs]
        parameters = bool(reads) and all(e.of_parameters or e.kind == PARAMETERS for e in reads)
        for entry in written:
            entry.received = not parameters and len(call.ranks) > 1
            entry.of_parameters = parameters
        if not self.recording or self.rank not in call.ranks:
            return None
        event = {"cat": "communication", "name": call.name, "args": _collectives.arguments(call)}
        args = event["args"]
        if call.op == "all_to_all" and self.received_read and args["in_bytes"] != args["out_bytes"]:
            self.warn(f"{place()}: sizes of an all-to-all follow from a value that came from another rank; even ones are taken")
            args["out_bytes"] = args["in_bytes"]
        self._requests += 1
        args["request"] = self._requests
        if not call.returns_work:
            for entry in written:
                self._requested[entry.number] = self._requests
        args["reads"], args["writes"] = _numbers(reads), _numbers(written)
        self._finish(event, backward)
        return args.get("request")

    # ---- labels ----

    def label_parameters(self, parameters, optimizer=None):
        for parameter in parameters:
            for tensor, kind in ((parameter, PARAMETERS), (parameter.grad, GRADIENTS)):
                if tensor is not None:
                    for part in inner_tensors(tensor):
                        entry = self.storages.label(part, kind)
                        if kind == PARAMETERS:
                            entry.received = False
        if optimizer is not None:
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        for part in inner_tensors(value):
                            self.storages.label(part, OPTIMIZER)

    def begin(self):
        self.events.clear()
        self.storages.begin(self.events)
        self._requests = 0
        self._requested.clear()
        self.recording = True

    def end(self):
        self.recording = False
        self.storages.end()
        if self._timers:
            torch.cuda.synchronize()
        for args, (begin, end) in self._timers:
            args["ns"] = int(1e6 * begin.elapsed_time(end))
        self._timers = []


def inner_tensors(tensor):
    """What a wrapper holds, or the tensor itself."""
    if type(tensor) in _PLAIN or not is_traceable_wrapper_subclass_type(type(tensor)):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    held = [getattr(tensor, name) for name in names]
    return [part for value in held if isinstance(value, torch.Tensor) for part in inner_tensors(value)]


def _in_mesh():
    """Whether a DeviceMesh is being made: it computes with values, so it gets real tensors."""
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(("device_mesh.py", "_mesh_layout.py")):
            return True
        frame = frame.f_back
    return False


def _numbers(entries):
    if len(entries) == 1:
        return [entries[0].number]
    return sorted({e.number for e in entries})
