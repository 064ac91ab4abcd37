# SPDX-License-Identifier: Apache-2.0
"""_script.py - an unmodified training script as one rank: the environment that torchrun gives, and hooks on optimiser steps.

init_process_group gives the fake group whatever backend is asked for. The recording begins after the step number `after` of the
first optimiser and ends after its next one, where the script ends, too.
"""
import contextlib
import functools
import multiprocessing.process
import os
import runpy
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from . import _file
from ._error import TraceError
from ._patches import put
from ._player import Player
from ._run import explained, set_aside, write
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


def _refuse_processes(stack):
    """A script that starts its own processes would leave the played rank: a sentence."""
    def start(process):
        raise TraceError("tessera.torch.trace: the script starts processes of its own (multiprocessing); give one that torchrun "
                         "could start")
    put(stack, multiprocessing.process.BaseProcess, "start", start)


def _load_here(stack):
    """Workers of a DataLoader would load in processes of their own: it loads here instead."""
    made = DataLoader.__init__

    @functools.wraps(made)
    def without_workers(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.num_workers, self.timeout, self.pin_memory = 0, 0, False
    put(stack, DataLoader, "__init__", without_workers)


def _lead_init(stack):
    """init_process_group of the script: the group is there, a second call is an error as PyTorch has it."""
    calls = 0

    def init_process_group(*args, **kwargs):
        nonlocal calls
        calls += 1
        if not dist.is_initialized():
            raise TraceError("tessera.torch.trace: the script destroyed the process group and makes another")
        if calls > 1:
            raise TraceError("tessera.torch.trace: the script calls init_process_group twice")
    for place in (dist, dist.distributed_c10d):
        put(stack, place, "init_process_group", init_process_group)


def _lead_script(stack, path, arguments, rank, world_size):
    """What the script finds, and what is put back behind it."""
    def restore(environment, words, folders):
        os.environ.clear()
        os.environ.update(environment)
        sys.argv, sys.path[:] = words, folders
    stack.callback(restore, dict(os.environ), list(sys.argv), list(sys.path))
    os.environ.update(_environment(rank, world_size))
    sys.argv, sys.path[0] = [path, *arguments], os.path.dirname(os.path.abspath(path))
    _refuse_processes(stack)
    _load_here(stack)
    _lead_init(stack)


def trace_script(path, arguments, rank, world_size, out, after=2, device="cpu", strict=False, kernels=None):
    """Runs a script as one rank and writes its step; returns a Summary."""
    if not os.path.isfile(path):
        raise TraceError(f"{path}: no such script")
    _file.check(out)
    player = Player(rank, world_size, device, strict, kernels)
    player.on_step = steps = _Steps(player, after)
    with contextlib.ExitStack() as stack, player:
        _lead_script(stack, path, arguments, rank, world_size)
        try:
            with explained(player):
                runpy.run_path(path, run_name="__main__")
        except _Finished:
            pass
        except TraceError as error:
            raise TraceError(f"{error}{set_aside(player, out)}") from error
        except (Exception, SystemExit) as error:
            if not isinstance(error, SystemExit) or error.code:
                raise TraceError(f"{path}: failed: {_why(error)}{set_aside(player, out)}") from error
    if steps.count <= after:
        raise TraceError(f"{path}: ended after {steps.count} steps of an optimiser, {after + 1} are needed" if steps.count else
                         f"{path}: never called an optimiser; steps end where an optimiser of torch.optim does")
    write(player, out)
    return summary_of(player.recorder, os.fspath(out))


def _why(error):
    text = str(error).strip().split("\n")[0]
    if not torch.cuda.is_available() and any(word in text for word in ("CUDA", "cuda", "NVIDIA")):
        return f"it needs a GPU, which is not there: {text}"
    return f"{type(error).__name__}: {text}"
