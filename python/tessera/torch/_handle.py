# SPDX-License-Identifier: Apache-2.0
"""_handle.py - selections as tensors, by which they go into operators and compiled graphs.

A handle is a tensor of one number whose storage owns the selection: it lives as long as any tensor over that storage does,
so until backward, and a compiled graph takes another selection without compiling again. Inside an operator, the number is
looked up among the selections that live: those of the host (tessera.Selection), and lists that were made on a device.
"""
from __future__ import annotations

import itertools
import weakref
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from .._lib import ArgumentError, ArgumentTypeError
from .._selection import Selection
from ._library import untraced

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_selections: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_next_number = itertools.count(1)


class _Owner(np.ndarray):
    """The array of a handle; its attribute keeps the selection, and the tensor's storage keeps the array."""
    selection: Any


def owner_of(selection: Any) -> Tensor:
    """A tensor of one number that owns this object, which find_selection finds by it."""
    number = _numbers.get(selection)
    if number is None:
        number = _numbers.setdefault(selection, next(_next_number))
        _selections[number] = selection
    array = np.array([number], np.int64).view(_Owner)
    array.selection = selection
    return torch.from_numpy(array)


@untraced
def handle(selection: Optional[Selection]) -> Optional[Tensor]:
    """The selection as the operator takes it: an int64 tensor of one element that owns it. None gives None: dense.

    A copy of the tensor (clone, to) has the number but does not own the selection.

    >>> import numpy as np, torch, tessera, tessera.torch
    >>> s = tessera.Selection.from_mask(np.eye(2, dtype=bool)[None], 16, 16, 32)
    >>> q = torch.ones(1, 1, 32, 8)
    >>> o, lse = torch.ops.tessera.attend(q, q, q, tessera.torch.handle(s), 8 ** -0.5, 0)
    >>> o.shape, lse.shape
    (torch.Size([1, 1, 32, 8]), torch.Size([1, 1, 32]))
    """
    if selection is None:
        return None
    if not isinstance(selection, Selection):
        raise ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a tessera.Selection or None")
    return owner_of(selection)


def find_selection(handle: Optional[Tensor]) -> Any:
    """The selection of a handle, of the host or of a device; None for None and for the number 0, which both mean dense attention."""
    number = 0 if handle is None else int(handle.item())
    if number == 0:
        return None
    selection = _selections.get(number)
    if selection is None:
        raise ArgumentError("handle is of a selection that no longer exists: keep the tensor that tessera.torch.handle or "
                            "tessera.torch.select returned, for a copy of it does not own the selection")
    return selection


def selection_of(handle: Optional[Tensor]) -> Optional[Selection]:
    """The selection of a handle that is not on a device."""
    selection = find_selection(handle)
    if selection is not None and not isinstance(selection, Selection):
        raise ArgumentError(f"handle is of lists on {selection.device}, must be of a tessera.Selection for tensors on the CPU")
    return selection
