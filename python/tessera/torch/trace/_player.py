# SPDX-License-Identifier: Apache-2.0
"""_player.py - a process as rank r of N: fake process group, recorder, hooks; and everything as it was afterwards."""
import contextlib
import functools
import sys

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from . import _compiled, _cuda, _ddp, _kernels, _received, _versions
from ._error import TraceError
from ._mode import Recorder
from ._modules import Modules
from ._patches import put

DEVICES = ("cpu", "meta", "cuda")
_active = None


def check(rank, world_size, device, kernels):
    """Whether this torch, this process and these numbers can be played."""
    if _versions.sentence() is not None:
        raise TraceError(_versions.sentence())
    if not isinstance(world_size, int) or isinstance(world_size, bool) or not 1 <= world_size <= 1 << 20:
        raise TraceError(f"tessera.torch.trace: world_size is {world_size!r}, must be 1..1048576")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < world_size:
        raise TraceError(f"tessera.torch.trace: rank is {rank!r}, must be 0..{world_size - 1}")
    if device not in DEVICES:
        raise TraceError(f"tessera.torch.trace: device is {device!r}, must be one of {', '.join(DEVICES)}")
    if kernels not in (None, *_kernels.CHOICES):
        raise TraceError(f"tessera.torch.trace: kernels is {kernels!r}, must be one of {', '.join(_kernels.CHOICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise TraceError("tessera.torch.trace: device is 'cuda', and this machine has no GPU that torch can use")
    if not dist.is_available():
        raise TraceError("tessera.torch.trace: this torch was built without torch.distributed")
    if _active is not None:
        raise TraceError("tessera.torch.trace: a recording runs already in this process; recordings do not nest")
    if dist.is_initialized():
        raise TraceError("tessera.torch.trace: torch.distributed is initialised already; call destroy_process_group first")


class Player:
    """with Player(...) as player: the program runs; player.recorder has the record."""

    def __init__(self, rank, world_size, device="cpu", strict=False, kernels=None):
        check(rank, world_size, device, kernels)
        self.rank, self.world_size, self.device, self.strict = rank, world_size, device, strict
        self.kernels = kernels or ("cpu" if device == "cpu" else "cuda")
        self.stack = None
        self.recording = None            # what is undone when the recorded step ends
        self.on_step = None              # called with an optimiser after each of its steps

    def __enter__(self):
        global _active
        with contextlib.ExitStack() as stack:
            _active = self
            stack.callback(_forget)
            _clear_caches()
            stack.callback(_clear_caches)
            _versions.fill_in(stack)
            self._start_group(stack)
            fake = None
            if self.device == "meta":
                from torch._subclasses.fake_tensor import FakeTensorMode
                fake = FakeTensorMode(allow_non_fake_inputs=True)
                self._patch_meshes(stack)
                _ddp.on_fakes(stack)
                _cuda.convert_parameters(stack)
                if not torch.cuda.is_available():
                    _cuda.without_gpu(stack)
                stack.enter_context(fake)
            self.recorder = Recorder(self.rank, self.world_size, fake, self.device == "cuda", self.strict, self.kernels)
            self.recorder.storages.watch(stack)
            self._watch_labels(stack)
            _compiled.run_eagerly(self.recorder, stack)
            if self.kernels == "cuda" and self.device != "cuda":
                _kernels.of_cuda(self.recorder, stack)
            self._watch_groups(stack)
            stack.enter_context(self.recorder)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        if self.recording is not None:
            self.recording.close()
        self.recorder.recording = False
        return self.stack.__exit__(*error)

    # ---- the process group ----

    def _start_group(self, stack):
        from torch.testing._internal.distributed.fake_pg import FakeStore
        stack.callback(setattr, sys, "excepthook", sys.excepthook)   # torch.distributed puts its own in front
        stack.callback(_destroy_groups)
        dist.init_process_group("fake", rank=self.rank, world_size=self.world_size, store=FakeStore())

    def _patch_meshes(self, stack):
        """A DeviceMesh computes with values: outside of fake tensors."""
        from torch.distributed.device_mesh import DeviceMesh
        for name in ("__init__", "__getitem__", "_flatten", "get_coordinate", "_unflatten"):
            original = DeviceMesh.__dict__.get(name)
            if original is None:
                continue

            def real(*args, _original=original, **kwargs):
                with _disable_current_modes():
                    return _original(*args, **kwargs)
            put(stack, DeviceMesh, name, functools.wraps(original)(real))

    def _watch_groups(self, stack):
        """A call in a process group without this rank, which PyTorch passes over."""
        original = dist.distributed_c10d._warn_not_in_group

        def not_in_group(operation):
            if self.recorder.recording:
                self.recorder.warn(f"{_received.place()}: {operation} in a process group that rank {self.rank} is not in: nothing "
                                   "is recorded")
            original(operation)
        put(stack, dist.distributed_c10d, "_warn_not_in_group", not_in_group)

    # ---- what tensors are for ----

    def _watch_labels(self, stack):
        recorder = self.recorder

        def before_module(module, args):
            for parameter in module._parameters.values():
                if parameter is not None:
                    recorder.label_parameters((parameter,))

        def before_step(optimizer, args, kwargs):
            for group in optimizer.param_groups:
                recorder.label_parameters(group["params"], optimizer)
            recorder.in_optimizer = True

        def after_step(optimizer, args, kwargs):
            recorder.in_optimizer = False
            recorder.label_parameters((), optimizer)
            if self.on_step is not None:
                self.on_step(optimizer)
        handles = [torch.nn.modules.module.register_module_forward_pre_hook(before_module),
                   register_optimizer_step_pre_hook(before_step), register_optimizer_step_post_hook(after_step)]
        for handle in handles:
            stack.callback(handle.remove)

    # ---- the recorded step ----

    def begin(self):
        recorder = self.recorder
        self.recording = contextlib.ExitStack()
        recorder.modules = self.recording.enter_context(Modules())
        _received.watch(self.recording, recorder.noted)
        recorder.begin()

    def end(self):
        self.recorder.end()
        self.recorder.modules = None
        recording, self.recording = self.recording, None
        recording.close()


def _clear_caches():
    """DTensor keeps local shapes of operators by mesh and not by rank: another rank must not find them."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import DTensor, _redistribute
    propagate = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding
    clears = [getattr(propagate, "cache_clear", None), getattr(getattr(propagate, "cache", None), "cache_clear", None),
              getattr(getattr(_redistribute, "_gen_transform_infos", None), "cache_clear", None),
              getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", None)]
    for clear in clears:
        if clear is not None:
            clear()


def _forget():
    global _active
    _active = None


def _destroy_groups():
    if dist.is_initialized():
        dist.destroy_process_group()
