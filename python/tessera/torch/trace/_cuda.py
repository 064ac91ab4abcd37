# SPDX-License-Identifier: Apache-2.0
"""_cuda.py - scripts that ask for CUDA, on fake tensors and a machine without a GPU.

What is put on a GPU stays a fake tensor of the CPU: only shapes and element types count, and _kernels.py records CUDA's operators.
torch.cuda answers as that of one device. A tensor's own `device` and `is_cuda` are those of the CPU.
"""
import contextlib
import functools
import types

import torch
from torch.overrides import TorchFunctionMode

from ._error import TraceError
from ._patches import put


def _is_cuda(value):
    return isinstance(value, torch.device) and value.type == "cuda" or isinstance(value, str) and value.split(":")[0] == "cuda"


def _moved(value):
    return torch.device("cpu") if _is_cuda(value) else value


_TO = {torch.Tensor.to, torch.Tensor.new_tensor}


class OnCpu(TorchFunctionMode):
    """Devices of arguments: the CPU instead of CUDA."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda or func is torch.Tensor.pin_memory:
            return args[0]
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _moved(kwargs["device"])}
        if func in _TO and len(args) > 1:
            args = (args[0], _moved(args[1]), *args[2:])
        return func(*args, **kwargs)


class _Properties(types.SimpleNamespace):
    def __getattr__(self, name):
        raise TraceError(f"tessera.torch.trace: the script asks a GPU for its {name}, and this machine has none")


def _nothing(*args, **kwargs):
    return None


def _zero(*args, **kwargs):
    return 0


def _context(*args, **kwargs):
    return contextlib.nullcontext()


class Stream(torch.cpu.Stream):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    wait_event = record_event = synchronize = _nothing

    def query(self):
        return True


class Event(torch.cpu.Event):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def elapsed_time(self, other):
        return 0.0


_MEMORY = 80 << 30
_NAME = "a GPU that is not there"
_CUDA = {
    "is_available": lambda: True, "is_initialized": lambda: True, "init": _nothing, "is_current_stream_capturing": lambda: False,
    "is_bf16_supported": lambda *args, **kwargs: True,
    "device_count": lambda: 1, "current_device": _zero, "set_device": _nothing, "device": _context,
    "get_device_name": lambda *args: _NAME, "get_device_capability": lambda *args: (9, 0),
    "get_device_properties": lambda *args: _Properties(name=_NAME, total_memory=_MEMORY, major=9, minor=0),
    "Stream": Stream, "Event": Event, "stream": _context, "set_stream": _nothing, "synchronize": _nothing,
    "current_stream": lambda *args: Stream(), "default_stream": lambda *args: Stream(),
    "manual_seed": _nothing, "manual_seed_all": _nothing, "seed_all": _nothing,
    "empty_cache": _nothing, "memory_allocated": _zero, "max_memory_allocated": _zero, "memory_reserved": _zero,
    "max_memory_reserved": _zero, "reset_peak_memory_stats": _nothing, "memory_stats": lambda *args: {},
    "mem_get_info": lambda *args: (_MEMORY, _MEMORY),
}


def without_gpu(stack):
    """Until the stack is left, a script may ask for CUDA."""
    from torch._dynamo import trace_rules
    trace_rules.get_torch_obj_rule_map()  # a table of torch's functions, made at its first use: of the real ones
    for name, value in _CUDA.items():
        put(stack, torch.cuda, name, value)
    if hasattr(torch, "accelerator"):    # what asks it, not torch.cuda, finds the CPU alone
        put(stack, torch.accelerator, "is_available", lambda: False)
        put(stack, torch.accelerator, "current_accelerator", lambda check_available=False: None)
    from torch.amp import autocast_mode
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel
    _first_moved(stack, autocast_mode.autocast, "device_type")
    _first_moved(stack, DeviceMesh, "device_type")
    made = DistributedDataParallel.__init__

    @functools.wraps(made)
    def without_ids(self, module, device_ids=None, output_device=None, *args, **kwargs):
        made(self, module, None, None, *args, **kwargs)
    put(stack, DistributedDataParallel, "__init__", without_ids)
    put(stack, torch.nn.Module, "cuda", lambda self, device=None: self)
    stack.enter_context(OnCpu())


def _first_moved(stack, kind, name):
    original = kind.__init__

    @functools.wraps(original)
    def made(self, *args, **kwargs):
        if args and _is_cuda(args[0]):
            args = ("cpu", *args[1:])
        if _is_cuda(kwargs.get(name)):
            kwargs[name] = "cpu"
        original(self, *args, **kwargs)
    put(stack, kind, "__init__", made)


def convert_parameters(stack):
    """Module.to() and its kin on fake parameters: PyTorch swaps them in place, and not where something refers to them weakly."""
    def apply(self, fn, recurse=True):
        memo = {}                        # parameters that modules share stay shared
        for module in self.modules() if recurse else [self]:
            for key, parameter in module._parameters.items():
                if parameter is None:
                    continue
                if parameter not in memo:
                    with torch.no_grad():
                        value = fn(parameter)
                    same = value is parameter
                    memo[parameter] = parameter if same else torch.nn.Parameter(value, parameter.requires_grad)
                module._parameters[key] = memo[parameter]
            for key, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[key] = fn(buffer)
        return self
    put(stack, torch.nn.Module, "_apply", apply)
