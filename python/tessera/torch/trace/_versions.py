# SPDX-License-Identifier: Apache-2.0
"""_versions.py - the versions of PyTorch whose hooks are known, and what the older of them lack."""
import sys

import torch

from ._patches import put

OLDEST, NEWEST = (2, 6), (2, 15)


def sentence():
    """Why this PyTorch cannot be recorded, or None."""
    version = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
    if OLDEST <= version <= NEWEST:
        return None
    return f"tessera.torch.trace: torch is {torch.__version__}, must be 2.6 to 2.15: the hooks of others are not known"


def fill_in(stack):
    """Until the stack is left: streams of CPUs in torch 2.6 lack two methods that FSDP2 calls and that do nothing later."""
    for name, method in (("record_event", _record_event), ("wait_event", lambda stream, event: None)):
        if not hasattr(torch.cpu.Stream, name):
            put(stack, torch.cpu.Stream, name, method)


def _record_event(stream, event=None):
    """HSDP of torch 2.6 wants an event; of gathers none, for on that of an unread gather it calls torch.cuda."""
    return None if sys._getframe(1).f_code.co_name == "foreach_all_gather" else torch.cpu.Event()
