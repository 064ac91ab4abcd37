# SPDX-License-Identifier: Apache-2.0
"""_compiled.py - regions of torch.compile run uncompiled while a program is played.

All their operators and collectives are seen, one by one; what a compiler would fuse is not, and a warning names each region.
"""
import inspect
import sys

from ._patches import put
from ._received import place


def run_eagerly(recorder, stack):
    """Until the stack is left, no region is compiled; compiled ones that run in the recorded step are told to the recorder."""
    from torch._dynamo import eval_frame

    def callback_from_stance(callback):
        if callback not in (None, False) and recorder.recording:
            region = _name(sys._getframe(1).f_locals["fn"])
            recorder.warn(f"{place()}: the region {region} of torch.compile runs uncompiled: its operators are recorded one by "
                          "one, without what the compiler would fuse")
    put(stack, eval_frame, "_callback_from_stance", callback_from_stance)


def _name(region):
    """Of a function, or the type of a module whose method it is."""
    region = inspect.unwrap(region)
    owner = getattr(region, "__self__", None)
    return type(owner).__name__ if owner is not None else getattr(region, "__qualname__", None) or type(region).__name__
