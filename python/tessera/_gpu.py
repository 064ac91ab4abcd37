# SPDX-License-Identifier: Apache-2.0
"""_gpu.py - libtessera_gpu: a device, lists on it, attention over pointers of its memory. Knows nothing of PyTorch.

The library lies beside libtessera and is opened when a device is first asked for; it opens the driver. Without a
driver, without a device or without kernels in the library, the sentence of UnsupportedError says which. Devices are
never closed.

Calls of one device come from one thread at a time: autograd runs backward in threads of its own, so each call locks.
"""
from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _lib
from ._lib import NULL, FormatError, UnsupportedError, check, context, ffi, make
from ._selection import Selection

_OUTCOMES = {"TESS_GPU_NOT_CHECKED": "not checked on this device",
             "TESS_GPU_CHECK_FAILED": "the check failed on this device", "TESS_GPU_CHECK_PASSED": ""}

_library: Any = None
_devices: dict[int, Union[Device, str]] = {}
_opening = threading.Lock()


class Rows(NamedTuple):
    """A tensor (batch, heads, tokens, elements) of device memory whose rows are contiguous; strides in elements."""
    pointer: int
    dtype: str  # "BF16", "F16", "F32"
    stride_b: int
    stride_h: int
    stride_s: int


class Shape(NamedTuple):
    """What attention is over."""
    batch: int
    heads: int
    tokens_q: int
    tokens_k: int
    head_dim: int
    scale: float
    atomic: bool = False


def library() -> Any:
    """libtessera_gpu, opened at the first call."""
    global _library
    if _library is None:
        path = os.path.join(_lib._HERE, "libtessera_gpu.so")
        if not os.path.exists(path):
            raise UnsupportedError(f"tessera: {path} is not there: build the target tessera_python, "
                                   "or reinstall tessera-dit")
        try:
            _library = ffi.dlopen(path, os.RTLD_NOW | getattr(os, "RTLD_NODELETE", 0))
        except OSError as error:
            raise UnsupportedError(f"tessera: {path} cannot be loaded: {error}") from error
    return _library


def device(number: int) -> Device:
    """The device of this number; UnsupportedError says why it cannot serve, the same sentence at each call."""
    with _opening:
        found = _devices.get(number)
        if found is None:
            try:
                found = Device(number)
            except UnsupportedError as error:
                found = str(error)
            _devices[number] = found
    if isinstance(found, str):
        raise UnsupportedError(found)
    return found


def _cache() -> Optional[str]:
    """The folder in which `tessera gpu check` stores what it found unless --cache says another; None: there is none."""
    base, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME")
    if not base.startswith("/"):
        base = os.path.join(home, ".cache") if home else ""
    return os.path.join(base, "tessera") if base else None


def _view(rows: Rows) -> Any:
    view = ffi.new("tess_view *")
    view.data = ffi.cast("void *", rows.pointer)
    view.dtype = getattr(_lib.lib, "TESS_DTYPE_" + rows.dtype)
    view.stride_b, view.stride_h, view.stride_s = rows.stride_b, rows.stride_h, rows.stride_s
    return view


def _shape(shape: Shape) -> Any:
    given = ffi.new("tess_gpu_attn_shape *")
    given.attn.batch, given.attn.heads, given.attn.head_dim = shape.batch, shape.heads, shape.head_dim
    given.attn.tokens_q, given.attn.tokens_k, given.attn.scale = shape.tokens_q, shape.tokens_k, shape.scale
    given.atomic = int(shape.atomic)
    return given


def _floats(pointer: Optional[int]) -> Any:
    return NULL if pointer is None else ffi.cast("float *", pointer)


def _pointer(address: int) -> Any:
    return ffi.cast("void *", address)


class Lists:
    """Key lists in memory of a device: `device`, and the stream that made them."""

    def __init__(self, device: Device, shape: Any, capacity: int, stream: int):
        self.device, self.stream = device, stream
        with device.lock:
            made = make("tess_gpu_selection", device.lib.tess_gpu_selection_create, device.p, shape, capacity)
        self.p = ffi.gc(made, device.destroy)


class Device:
    """A device that libtessera_gpu has kernels for. Pointers of arguments are of its memory, streams are CUstream."""

    def __init__(self, number: int):
        self.lib = library()
        self.lock = threading.RLock()  # a list may be freed by the garbage collector in the midst of a call
        self.p = make("tess_gpu", self.lib.tess_gpu_open, context(), number)
        info = ffi.new("tess_gpu_info *")
        check(self.lib.tess_gpu_query(self.p, info))
        self.name = ffi.string(info.name).decode("utf-8", "replace")
        self.capability = info.major, info.minor
        self.image = ffi.string(info.image).decode()
        self.doubt = self._checked(_cache())

    def _checked(self, folder: Optional[str]) -> str:
        """"" where `tessera gpu check` has passed on this device; else what is to be said."""
        result = ffi.new("tess_gpu_check_result *")
        if folder is not None:
            try:
                check(self.lib.tess_gpu_checked(self.p, os.fsencode(folder), result))
            except FormatError as error:
                return f"not checked on this device: {error}"
        return next(text for name, text in _OUTCOMES.items() if getattr(_lib.lib, name) == result.outcome)

    def destroy(self, p: Any) -> None:
        """Frees the lists that Lists made."""
        with self.lock:
            self.lib.tess_gpu_selection_destroy(p)

    def upload(self, selection: Selection, stream: int) -> Lists:
        """The lists of a selection, copied to the device."""
        view = selection._view()
        lists = Lists(self, ffi.addressof(view.shape), view.offsets[view.lists], stream)
        with self.lock:
            check(self.lib.tess_gpu_selection_upload(lists.p, selection._p, _pointer(stream)))
        return lists

    def select(self, shape: Any, q: Rows, k: Rows, rank: int, keep: np.ndarray, stream: int) -> Lists:
        """Lists of the keep (batch, heads) largest scores of each group, ascending; shape: tess_sel_shape, n_q set."""
        lists = Lists(self, shape, int(keep.sum(dtype=np.int64)) * shape.n_q, stream)
        given = ffi.new("tess_gpu_select_in *")
        view_q, view_k = _view(q), _view(k)
        given.q, given.k, given.rank, given.keep = view_q, view_k, rank, _lib.int32s(keep)
        with self.lock:
            check(self.lib.tess_gpu_select(self.p, given, lists.p, _pointer(stream)))
        return lists

    def forward(self, shape: Shape, lists: Lists, q: Rows, k: Rows, v: Rows, o: Rows, lse: int, stream: int) -> None:
        with self.lock:
            check(self.lib.tess_gpu_attn_forward(self.p, _shape(shape), lists.p, _view(q), _view(k), _view(v), _view(o),
                                                 _floats(lse), _pointer(stream)))

    def workspace(self, shape: Shape, lists: Lists, budget: int) -> int:
        """Bytes that backward takes of a budget; 0: as many as it takes in one round."""
        size = ffi.new("int64_t *")
        with self.lock:
            check(self.lib.tess_gpu_attn_workspace(self.p, _shape(shape), lists.p, budget, size))
        return int(size[0])

    def backward(self, shape: Shape, lists: Lists, given: tuple[Rows, Rows, Rows, Rows], lse: int, dout: Rows,
                 dlse: Optional[int], gradients: tuple[Rows, Rows, Rows], work: int, work_bytes: int,
                 stream: int) -> None:
        """given: q, k, v, o; gradients: dq, dk, dv of F32. work: 256-byte aligned."""
        views = [_view(rows) for rows in given]
        saved = ffi.new("tess_attn_saved *")
        saved.q, saved.k, saved.v, saved.o = views
        saved.lse = _floats(lse)
        with self.lock:
            check(self.lib.tess_gpu_attn_backward(self.p, _shape(shape), lists.p, saved, _view(dout), _floats(dlse),
                                                  *(_view(rows) for rows in gradients), _pointer(work), work_bytes,
                                                  _pointer(stream)))
