# SPDX-License-Identifier: Apache-2.0
"""_versions.py - the versions of PyTorch whose hooks are known, and what the older of them lack."""
import torch

OLDEST, NEWEST = (2, 6), (2, 15)


def sentence():
    """Why this PyTorch cannot be recorded, or None."""
    version = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
    if OLDEST <= version <= NEWEST:
        return None
    return f"tessera.torch.trace: torch is {torch.__version__}, must be 2.6 to 2.15: the hooks of others are not known"


def fill_in(stack):
    """Until the stack is left: streams of CPUs in torch 2.6 lack two methods that FSDP2 calls and that do nothing later."""
    for name in ("record_event", "wait_event"):
        if not hasattr(torch.cpu.Stream, name):
            setattr(torch.cpu.Stream, name, lambda stream, *args: None)
            stack.callback(delattr, torch.cpu.Stream, name)
