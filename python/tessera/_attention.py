# SPDX-License-Identifier: Apache-2.0
"""_attention.py - attention over a selection, forward and backward.

An attention object of C has a workspace for one shape and serves one thread at a time: each Python thread keeps the
last ones it used, by shape. Structs for the arguments are kept too, for making them costs as much as a small call.
"""
from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Optional, Union

import numpy as np

from . import _lib
from ._lib import ArgumentError, NULL, check, context, ffi, floats, integer, lib, make, number, rows_of, view_of
from ._selection import Selection

COMPENSATE_MAX = 64  # as include/tessera/attn.h says
_KEPT = 16  # objects of a thread: 0.6 MiB for each thread of the context at head_dim 128


class _Kept(threading.local):
    def __init__(self):
        self.objects = OrderedDict()
        self.views = []


_kept = _Kept()


def attention_object(batch: int, heads: int, seq_q: int, seq_k: int, head_dim: int, scale: Optional[float] = None,
                     compensate: int = 0, threads: Optional[int] = None) -> Any:
    """The tess_attn of this shape for the calling thread, made when it is first asked for."""
    threads = _lib._threads if threads is None else threads
    key = (batch, heads, seq_q, seq_k, head_dim, scale, compensate, threads)
    objects = _kept.objects
    try:
        found = objects.get(key)
    except TypeError:  # unhashable: no number, as is said below
        found = None
    if found is not None:
        objects.move_to_end(key)
        return found
    shape = ffi.new("tess_attn_shape *")
    shape.batch, shape.heads, shape.head_dim = batch, heads, head_dim
    shape.tokens_q, shape.tokens_k = seq_q, seq_k
    if scale is not None:
        if not 0.0 < number("scale", scale) < float("inf"):
            raise ArgumentError(f"scale is {scale}, must be positive and finite, or None for 1 / sqrt(head_dim)")
        shape.scale = scale
    shape.compensate = integer("compensate", compensate, 0, COMPENSATE_MAX)
    found = ffi.gc(make("tess_attn", lib.tess_attn_create, context(threads), shape), lib.tess_attn_destroy)
    objects[key] = found
    if len(objects) > _KEPT:
        objects.popitem(last=False)
    return found


def _new_views():
    return [ffi.new("tess_view *") for _ in range(8)]


def _shape_of(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[int, int, int, int, int]:
    """(batch, heads, queries, keys, head_dim), if the arrays fit each other."""
    batch, heads, seq_q, head_dim = q.shape
    want = (batch, heads, k.shape[2], head_dim)
    if k.shape != want:
        raise ArgumentError(f"k has the shape {k.shape}, must be ({batch}, {heads}, keys, {head_dim}) as q has")
    if v.shape != want:
        raise ArgumentError(f"v has the shape {v.shape}, must be that of k, {want}")
    return batch, heads, seq_q, k.shape[2], head_dim


def _pointer(selection):
    if selection is None:
        return NULL
    try:
        return selection._p
    except AttributeError:
        raise _lib.ArgumentTypeError(f"selection is a {type(selection).__name__}, must be a Selection or None") from None


def _like(name: str, array: Any, shape: tuple[int, ...]) -> np.ndarray:
    """float32 of this shape, C-contiguous."""
    array = np.asarray(array)
    if array.dtype != np.float32:
        raise _lib.ArgumentTypeError(f"{name} is of {array.dtype}, must be float32")
    if array.shape != shape:
        raise ArgumentError(f"{name} has the shape {array.shape}, must be {shape}")
    return np.ascontiguousarray(array)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, selection: Optional[Selection] = None,
              scale: Optional[float] = None, return_lse: bool = False,
              compensate: int = 0) -> Union[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """softmax(scale q k^T, restricted to the selection) v, exactly; without a selection dense attention.

    q: (batch, heads, queries, head_dim), k, v: (batch, heads, keys, head_dim), float32, head_dim a multiple of 8 up to
    256. Strides are any: views of (batch, tokens, heads, head_dim) are taken without a copy, as long as the elements of
    a row are neighbours. scale: None for 1 / sqrt(head_dim). compensate: virtual keys that stand for those a list leaves
    out: 1 (or True) for their mean, 2..64 for the means of so many clusters of keys, 0 for none.

    Returns o of the shape of q, and with return_lse (o, lse), lse (batch, heads, queries): the log of the softmax's sum,
    natural. A query without keys has o = 0 and lse = -inf. The same bits for every number of threads. Other Python
    threads run meanwhile.

    >>> import numpy as np, tessera
    >>> q = np.ones((1, 2, 64, 8), np.float32)
    >>> o, lse = tessera.attention(q, q, q, return_lse=True)
    >>> o.shape, lse.shape, bool(np.allclose(o, 1))
    ((1, 2, 64, 8), (1, 2, 64), True)
    """
    q, k, v = rows_of("q", q), rows_of("k", k), rows_of("v", v)
    batch, heads, seq_q, seq_k, head_dim = _shape_of(q, k, v)
    attn = attention_object(batch, heads, seq_q, seq_k, head_dim, scale, compensate)
    o = np.empty(q.shape, np.float32)
    lse = np.empty((batch, heads, seq_q), np.float32) if return_lse else None
    views = _kept.views.pop() if _kept.views else _new_views()
    check(lib.tess_attn_forward(attn, _pointer(selection), view_of(q, views[0]), view_of(k, views[1]),
                                view_of(v, views[2]), view_of(o, views[3]), NULL if lse is None else floats(lse)))
    _kept.views.append(views)
    return o if lse is None else (o, lse)


def attention_backward(do: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, o: np.ndarray, lse: np.ndarray,
                       selection: Optional[Selection] = None, scale: Optional[float] = None,
                       dlse: Optional[np.ndarray] = None,
                       compensate: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients (dq, dk, dv) of a loss whose gradients by the results of attention() are do and, if lse is used, dlse.

    do, o: the shape of q; lse, dlse: (batch, heads, queries); all float32. Other arguments as attention() had them. A
    key that no query selects has gradients of 0. The same bits on every run and for every number of threads.
    """
    q, k, v = rows_of("q", q), rows_of("k", k), rows_of("v", v)
    batch, heads, seq_q, seq_k, head_dim = _shape_of(q, k, v)
    do, o = rows_of("do", do), rows_of("o", o)
    for name, array in (("do", do), ("o", o)):
        if array.shape != q.shape:
            raise ArgumentError(f"{name} has the shape {array.shape}, must be that of q, {q.shape}")
    lse = _like("lse", lse, (batch, heads, seq_q))
    dlse = None if dlse is None else _like("dlse", dlse, (batch, heads, seq_q))
    attn = attention_object(batch, heads, seq_q, seq_k, head_dim, scale, compensate)
    gradients: tuple[np.ndarray, np.ndarray, np.ndarray] = tuple(np.empty(x.shape, np.float32) for x in (q, k, v))  # type: ignore[assignment]
    views = _kept.views.pop() if _kept.views else _new_views()
    for array, view in zip((q, k, v, o, do, *gradients), views):
        view_of(array, view)
    saved = ffi.new("tess_attn_saved *")
    saved.q, saved.k, saved.v, saved.o = views[:4]
    saved.lse = floats(lse)
    check(lib.tess_attn_backward(attn, _pointer(selection), saved, views[4], NULL if dlse is None else floats(dlse),
                                 *views[5:]))
    _kept.views.append(views)
    return gradients
