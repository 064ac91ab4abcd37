# SPDX-License-Identifier: Apache-2.0
"""__init__.py - dynamic sparse attention for video diffusion transformers: selections, exact attention, plans for many ranks.

NumPy arrays in, NumPy arrays out; tessera.torch has the same for PyTorch. docs/python.md is the guide.
"""
DISTRIBUTION = "tessera-dit"  # by which _lib.py knows that this file is ours

from ._attention import attention, attention_backward
from ._doctor import Finding, doctor
from ._exchange import Exchange, Ring, RingStep, Slot
from ._lib import (ArgumentError, ArgumentTypeError, Error, FileError, FormatError, OutOfMemoryError, StoppedError,
                   UnsupportedError, ffi as _ffi, get_threads, lib as _library, set_threads)
from ._plan import Candidate, Plan, Verdict, plan
from ._random import random_normal
from ._selection import Measured, Selection
from ._selectors import oracle, order_cubes, pooled, predictor, random, window

__all__ = ["DISTRIBUTION", "ArgumentError", "ArgumentTypeError", "Candidate", "Error", "Exchange", "FileError", "Finding",
           "FormatError", "Measured", "OutOfMemoryError", "Plan", "Ring", "RingStep", "Selection", "Slot", "StoppedError",
           "UnsupportedError", "Verdict", "attention", "attention_backward", "doctor", "get_threads", "oracle", "order_cubes", "plan",
           "pooled", "predictor", "random", "random_normal", "set_threads", "window"]

__version__ = _ffi.string(_library.tess_version()).decode()

for _kind in (ArgumentError, ArgumentTypeError, Error, FileError, FormatError, OutOfMemoryError, StoppedError, UnsupportedError,
              Measured, Selection, Plan, Exchange, Candidate, Verdict, Slot, Ring, RingStep, Finding):
    _kind.__module__ = __name__
