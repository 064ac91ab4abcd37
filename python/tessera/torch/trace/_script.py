# SPDX-License-Identifier: Apache-2.0
"""_script.py - an unmodified training script as one rank: the environment that torchrun gives, and hooks on optimiser steps.

init_process_group gives the fake group whatever backend is asked for. The recording begins after the step number `after` of the
first optimiser and ends after its next one, where the script ends, too.
"""
import os
import runpy
import sys

import torch
import torch.distributed as dist

from . import _file
from ._error import TraceError
from ._player import Player
from ._run import set_aside
from ._summary import summary_of


class _Finished(BaseException):
    """Ends the script; no Exception, which scripts catch."""


class _Steps:
    def __init__(self, player, after):
        self.player, self.after, self.first, self.count = player, after, None, 0

    def __call__(self, optimizer):
        if self.first is None:
            self.first = optimizer
        if optimizer is not self.first:
            return
        self.count += 1
        if self.count == self.after:
            self.player.begin()
        elif self.count == self.after + 1:
            self.player.end()
            raise _Finished


def _environment(rank, world_size):
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
            "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def _refuse_processes():
    """A script that starts its own processes would leave the played rank: a sentence."""
    import torch.multiprocessing as processes

    def refuse(*args, **kwargs):
        raise TraceError("tessera.torch.trace: the script starts processes of its own (torch.multiprocessing); give one that "
                         "torchrun could start")
    original = {name: getattr(processes, name) for name in ("spawn", "start_processes", "Process")}
    for name in original:
        setattr(processes, name, refuse)
    return lambda: [setattr(processes, name, value) for name, value in original.items()]


def _load_here():
    """Workers of a DataLoader would load in processes of their own: it loads here instead."""
    from torch.utils.data import DataLoader
    original = DataLoader.__init__

    def made(self, *args, **kwargs):
        if kwargs.get("num_workers"):
            for name in ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
                kwargs.pop(name, None)
        kwargs.pop("pin_memory", None)
        original(self, *args, **kwargs)
    DataLoader.__init__ = made

    def restore():
        DataLoader.__init__ = original
    return restore


def _lead_init():
    """init_process_group of the script: the group is there, a second call is an error as PyTorch has it."""
    original, seen = dist.init_process_group, []

    def init_process_group(backend=None, *args, **kwargs):
        if seen and dist.is_initialized():
            raise TraceError("tessera.torch.trace: the script calls init_process_group twice")
        seen.append(backend)
        if not dist.is_initialized():
            raise TraceError("tessera.torch.trace: the script destroyed the process group and makes another")
    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group

    def restore():
        dist.init_process_group = dist.distributed_c10d.init_process_group = original
    return restore


def trace_script(path, arguments, rank, world_size, out, after=2, device="cpu", strict=False, kernels=None):
    """Runs a script as one rank and writes its step; returns a Summary."""
    if not os.path.isfile(path):
        raise TraceError(f"{path}: no such script")
    saved = dict(os.environ), list(sys.argv), list(sys.path)
    os.environ.update(_environment(rank, world_size))
    player = Player(rank, world_size, device, strict, kernels)
    player.on_step = steps = _Steps(player, after)
    undo = []
    try:
        with player:
            undo = [_refuse_processes(), _load_here(), _lead_init()]
            sys.argv, sys.path[0] = [path, *arguments], os.path.dirname(os.path.abspath(path))
            try:
                runpy.run_path(path, run_name="__main__")
            except _Finished:
                pass
            except TraceError:
                raise
            except (Exception, SystemExit) as error:
                if isinstance(error, SystemExit) and not error.code:
                    pass
                else:
                    raise TraceError(f"{path}: failed: {_why(error)}{set_aside(player, out)}") from error
    finally:
        for one in undo:
            one()
        os.environ.clear()
        os.environ.update(saved[0])
        sys.argv, sys.path[:] = saved[1], saved[2]
    if steps.count <= after:
        raise TraceError(f"{path}: ended after {steps.count} steps of an optimiser, {after + 1} are needed" if steps.count else
                         f"{path}: never called an optimiser; steps end where an optimiser of torch.optim does")
    _file.write(out, player.recorder, [rank], device)
    return summary_of(player.recorder, os.fspath(out))


def _why(error):
    text = str(error).strip().split("\n")[0]
    if not torch.cuda.is_available() and any(word in text for word in ("CUDA", "cuda", "NVIDIA")):
        return f"it needs a GPU, which is not there: {text}"
    return f"{type(error).__name__}: {text}"
