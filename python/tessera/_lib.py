# SPDX-License-Identifier: Apache-2.0
"""_lib.py - the library, its errors, contexts, and arrays as C sees them.

The library lies beside this file: in a wheel as a file, in the build folder as a link. _decl.py, made from the public
headers, has its structs and functions; a library of other headers is refused.

Contexts are never destroyed: one for each number of threads, as long as the process lives. Objects count as users of
their context, so the order in which an interpreter frees them at its end does not matter.
"""
from __future__ import annotations

import operator
import os
import sys
from typing import Any, Optional

import numpy as np

_HERE = os.path.dirname(os.path.abspath(__file__))

# PyPI's package `tessera`, installed later into the same folder, puts its own __init__.py over ours.
_package = sys.modules.get(__package__)
if getattr(_package, "DISTRIBUTION", None) != "tessera-dit":
    raise ImportError(f"tessera: the module found is {getattr(_package, '__file__', None)}, not that of tessera-dit: PyPI's "
                      "package `tessera` is another project; pip uninstall tessera, then pip install --force-reinstall "
                      "tessera-dit")

try:
    from ._decl import abi, ffi  # type: ignore[import-not-found]  # made by the build
except ImportError as error:
    if "_decl" not in str(error):
        raise ImportError(f"tessera: cffi cannot be imported ({error}): pip install cffi, or Debian's python3-cffi") from error
    raise ImportError(f"tessera: {_HERE} has no _decl.py, so it is the source folder: set PYTHONPATH to the folder python "
                      "of a build, or pip install tessera-dit") from error

NULL = ffi.NULL


# ---- errors ----------------------------------------------------------------------------------------------------------

class Error(Exception):
    """What failed, in one sentence that names the value and the rule. `status` is the name of the C status."""
    status = ""


class ArgumentError(Error, ValueError):
    """An argument is out of its documented range."""
    status = "EINVAL"


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has a type or dtype that is not taken."""


class FormatError(Error, ValueError):
    """A file is not what it claims to be."""
    status = "EFORMAT"


class FileError(Error, OSError):
    """A file cannot be read or written."""
    status = "EIO"


class UnsupportedError(Error, NotImplementedError):
    """Valid, but not on this machine or in this build."""
    status = "ENOTSUP"


class OutOfMemoryError(Error, MemoryError):
    """An allocation of the library failed."""
    status = "ENOMEM"


class StoppedError(Error, InterruptedError):
    """A callback asked to stop."""
    status = "ESTOPPED"


# ---- the library -----------------------------------------------------------------------------------------------------

def _open_library(path: str) -> Any:
    if not os.path.exists(path):
        raise ImportError(f"tessera: {path} is not there: build the target tessera_python, or reinstall tessera-dit")
    try:
        # Not unloaded at exit, when objects may still be freed.
        library = ffi.dlopen(path, os.RTLD_NOW | getattr(os, "RTLD_NODELETE", 0))
    except OSError as error:
        if "libgomp" in str(error):
            raise ImportError("tessera: libgomp.so.1, the OpenMP runtime, is missing; it is in the package libgomp1 of "
                              "Debian and Ubuntu, libgomp of Fedora, Alpine and conda-forge, and in PyTorch's wheel, "
                              "if torch is imported first") from error
        raise ImportError(f"tessera: {path} cannot be loaded: {error}") from error
    try:
        have = ffi.string(library.tess_abi()).decode()
    except AttributeError:
        have = "none"
    if have != abi:
        raise ImportError(f"tessera: {path} was built with other headers than this package (tess_abi() is {have}, must be "
                          f"{abi}): build or install both together")
    return library


lib = _open_library(os.path.join(_HERE, "libtessera.so"))

_ERRORS = {getattr(lib, "TESS_" + kind.status): kind for kind in
           (ArgumentError, FormatError, FileError, UnsupportedError, OutOfMemoryError, StoppedError)}


def check(status: int) -> None:
    """Raises what the library says of a status that is not TESS_OK."""
    if status:
        text = ffi.string(lib.tess_last_error()).decode("utf-8", "replace")
        raise _ERRORS.get(status, Error)(text)


def make(kind: str, call, *arguments) -> Any:
    """The object that a call of C returns through its last argument."""
    made = ffi.new(kind + " **")
    check(call(*arguments, made))
    return made[0]


# ---- contexts --------------------------------------------------------------------------------------------------------

_contexts: dict[int, Any] = {}
_threads = 0


def set_threads(threads: int) -> None:
    """Sets the threads of calls from now on: 1 to 1024, or 0 for all usable cores (or $TESS_THREADS)."""
    global _threads
    context(integer("threads", threads, 0, 1024))
    _threads = int(threads)


def get_threads() -> int:
    """The threads that calls use: what set_threads asked for, or all usable cores; 1 in a forked child."""
    info = ffi.new("tess_ctx_info *")
    check(lib.tess_ctx_query(context(), info))
    return info.threads


def context(threads: Optional[int] = None) -> Any:
    """The context of so many threads, by default those of set_threads."""
    threads = _threads if threads is None else threads
    found = _contexts.get(threads)
    if found is None:
        opts = ffi.new("tess_ctx_opts *")
        opts.threads = threads
        found = _contexts.setdefault(threads, make("tess_ctx", lib.tess_ctx_create, opts))
    return found


# ---- arguments -------------------------------------------------------------------------------------------------------

def integer(name: str, value: Any, low: int, high: int) -> int:
    """The value as int, if it is one within the range."""
    try:
        number = int(value) if isinstance(value, np.bool_) else operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, must be an integer") from None
    if not low <= number <= high:
        raise ArgumentError(f"{name} is {number}, must be {low}..{high}")
    return number


def number(name: str, value: Any) -> float:
    """The value as float, if it is a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} is {value!r}, must be a number") from None


def integers(name: str, values: Any, dtype: Any = np.int64, dims: int = 1) -> np.ndarray:
    """The values as a contiguous array of this integer type, of which none is cut off."""
    array = np.asarray(values)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{name} is of {array.dtype}, must be of integers")
    if array.ndim != dims:
        raise ArgumentError(f"{name} has {array.ndim} dimensions, must have {dims}")
    if array.dtype != dtype and array.size:
        range_of = np.iinfo(dtype)
        if array.max() > range_of.max or array.min() < range_of.min:
            raise ArgumentError(f"{name} has values outside of {range_of.min}..{range_of.max}")
    return np.ascontiguousarray(array, dtype)


def path_of(name: str, path: Any) -> bytes:
    """The path as C takes it."""
    try:
        return os.fsencode(path)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {path!r}, must be a path") from None


def address(array: np.ndarray) -> int:
    """Where the data begin: a quarter of the time of array.ctypes.data."""
    return array.__array_interface__["data"][0]


def int64s(array: np.ndarray) -> Any:
    return ffi.cast("int64_t *", address(array))


def int32s(array: np.ndarray) -> Any:
    return ffi.cast("int32_t *", address(array))


def doubles(array: np.ndarray) -> Any:
    return ffi.cast("double *", address(array))


def floats(array: np.ndarray) -> Any:
    return ffi.cast("float *", address(array))


def copy_of(pointer: Any, count: int, dtype: Any) -> np.ndarray:
    """A NumPy array of count elements from a pointer of C."""
    dtype = np.dtype(dtype)
    if count == 0 or pointer == NULL:
        return np.empty(0, dtype)
    return np.frombuffer(ffi.buffer(pointer, count * dtype.itemsize), dtype=dtype).copy()


_FLOAT32 = np.dtype(np.float32)


def rows_of(name: str, array: np.ndarray) -> np.ndarray:
    """A (batch, heads, tokens, head_dim) array of float32 whose rows of head_dim elements are contiguous."""
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(f"{name} is a {type(array).__name__}, must be a NumPy array")
    if array.dtype != _FLOAT32:
        raise ArgumentTypeError(f"{name} is of {array.dtype}, must be float32")
    if array.ndim != 4:
        raise ArgumentError(f"{name} has the shape {array.shape}, must be (batch, heads, tokens, head_dim)")
    b, h, s, d = array.strides
    if (d != 4 and array.shape[3] > 1) or (b | h | s) & 3 or address(array) & 3:
        return np.ascontiguousarray(array)
    return array


def view_of(array: np.ndarray, view: Any) -> Any:
    """Fills a tess_view with an array that rows_of gave."""
    view.data = ffi.cast("void *", address(array))
    b, h, s, _ = array.strides
    view.stride_b, view.stride_h, view.stride_s = b >> 2, h >> 2, s >> 2
    return view
