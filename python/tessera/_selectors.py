# SPDX-License-Identifier: Apache-2.0
"""_selectors.py - functions that choose the keys of each query block and return a Selection; and the token order of cubes."""
from __future__ import annotations

from typing import Optional, Sequence, Union

import numpy as np

from ._lib import (NULL, ArgumentError, check, context, doubles, ffi, floats, int32s, int64s, integer, integers, lib, make,
                   number, rows_of)
from ._selection import TOKENS_MAX, Block, Selection, fill_qk, sel_shape

Budget = Union[float, Sequence[float], np.ndarray, None]


def order_cubes(grid: Sequence[int], cube: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens of a video in cubes: (perm, inverse, bounds), int64.

    grid, cube: tokens along frames, rows, columns. perm[i]: the raster index of the token at place i, so that x[..., perm, :]
    is in cube order; inverse brings it back. bounds: where each cube begins, for q_block and k_block.

    >>> perm, inverse, bounds = order_cubes((2, 4, 4), (2, 2, 2))
    >>> perm[:8].tolist(), bounds.tolist()
    ([0, 1, 4, 5, 16, 17, 20, 21], [0, 8, 16, 24, 32])
    """
    sizes = []
    for name, values in (("grid", grid), ("cube", cube)):
        if np.shape(values) != (3,):
            raise ArgumentError(f"{name} is {values!r}, must be three sizes: frames, rows, columns")
        sizes.append(ffi.new("int[3]", [integer(f"{name}[{i}]", v, 1, TOKENS_MAX) for i, v in enumerate(values)]))
    count = ffi.new("int32_t *")
    check(lib.tess_order_cubes(*sizes, NULL, NULL, NULL, count))
    tokens = int(np.prod([int(g) for g in grid]))
    perm, inverse, bounds = np.empty(tokens, np.int64), np.empty(tokens, np.int64), np.empty(count[0] + 1, np.int64)
    check(lib.tess_order_cubes(*sizes, int64s(perm), int64s(inverse), int64s(bounds), count))
    return perm, inverse, bounds


def _budget(given, heads: int, density: Budget, keys: Budget, mass: Optional[float] = None) -> Optional[np.ndarray]:
    """Fills the one budget that is given; returns the arrays that must outlive the call."""
    chosen = [name for name, value in (("density", density), ("keys", keys), ("mass", mass)) if value is not None]
    if len(chosen) != 1:
        raise ArgumentError(f"density, keys, mass: {' and '.join(chosen) if chosen else 'none'} given, must be exactly one")
    budget = given.budget
    if mass is not None:
        budget.mass = number("mass", mass)
    elif np.ndim(np.asarray(density if keys is None else keys)) == 0:
        if keys is not None:
            budget.keys = integer("keys", keys, 1, TOKENS_MAX)
        elif not 0.0 < number("density", density) <= 1.0:
            raise ArgumentError(f"density is {density}, must be above 0, at most 1")
        else:
            budget.density = density
    else:
        name, values = ("keys", integers("keys", keys, np.int32)) if keys is not None else \
            ("density", np.ascontiguousarray(density, np.float64))
        if values.shape != (heads,):
            raise ArgumentError(f"{name} has the shape {values.shape}, must be one number, or ({heads},): one for each head")
        if keys is not None:
            budget.keys_head = int32s(values)
        else:
            budget.density_head = doubles(values)
        return values
    return None


def _select(opts, given, shape) -> Selection:
    selector = ffi.gc(make("tess_selector", lib.tess_selector_create, context(), opts), lib.tess_selector_destroy)
    capacity = ffi.new("int64_t *")
    check(lib.tess_selector_capacity(selector, shape, given, capacity))
    made = Selection(make("tess_selection", lib.tess_selection_create, context(), shape, capacity[0]))
    check(lib.tess_selector_run(selector, given, made._p))
    return made


def _scored(kind, q, k, q_block, k_block, density, keys, mass, scale, lse=None, proxy=None) -> Selection:
    """A selector that scores keys by queries."""
    q, k = rows_of("q", q), rows_of("k", k)
    opts, given = ffi.new("tess_selector_opts *"), ffi.new("tess_select_in *")
    opts.kind = kind
    if proxy is not None:
        words = {"mean": lib.TESS_PROXY_MEAN, "centre": lib.TESS_PROXY_CENTRE, "softmax": lib.TESS_PROXY_SOFTMAX}
        if proxy not in words:
            raise ArgumentError(f"proxy is {proxy!r}, must be mean, centre or softmax")
        opts.proxy = words[proxy]
    shape, bounds = sel_shape(q.shape[0], q.shape[1], q.shape[2], k.shape[2], q_block, k_block)
    kept = fill_qk(given, q, k, shape, scale)
    if lse is not None:
        lse = np.ascontiguousarray(lse, np.float32)
        if lse.shape != q.shape[:3]:
            raise ArgumentError(f"lse has the shape {lse.shape}, must be {q.shape[:3]}")
        given.lse = floats(lse)
    budget = _budget(given, shape.heads, density, keys, mass)
    made = _select(opts, given, shape)
    del bounds, kept, budget
    return made


def oracle(q: np.ndarray, k: np.ndarray, q_block: Block, k_block: Block, *, density: Budget = None, keys: Budget = None,
           mass: Optional[float] = None, scale: Optional[float] = None, lse: Optional[np.ndarray] = None) -> Selection:
    """The key blocks of most softmax mass over the queries of each block.

    q: (batch, heads, queries, head_dim), k: (batch, heads, keys, head_dim), float32. Exactly one of density (of key
    blocks), keys (blocks) and mass (the smallest set that reaches this share); density and keys also one for each head.
    lse (batch, heads, queries), as attention gives it, saves half of the time.
    """
    return _scored(lib.TESS_SELECT_ORACLE, q, k, q_block, k_block, density, keys, mass, scale, lse)


def pooled(q: np.ndarray, k: np.ndarray, q_block: Block, k_block: Block, *, density: Budget = None, keys: Budget = None,
           mass: Optional[float] = None, scale: Optional[float] = None) -> Selection:
    """The key blocks of the largest scores between mean queries and mean keys of the blocks. Arguments as of oracle."""
    return _scored(lib.TESS_SELECT_POOLED, q, k, q_block, k_block, density, keys, mass, scale)


def predictor(q: np.ndarray, k: np.ndarray, q_block: Block, k_block: Block = 1, *, density: Budget = None,
              keys: Budget = None, scale: Optional[float] = None, proxy: str = "mean") -> Selection:
    """DSV's predictor: the key blocks of the largest scores of low-rank vectors.

    q, k: (batch, heads, tokens, rank) projected vectors, rank a multiple of 8 up to 64. proxy: what stands for a block of
    queries, "mean", "centre" or "softmax".
    """
    return _scored(lib.TESS_SELECT_PREDICTOR, q, k, q_block, k_block, density, keys, None, scale, proxy=proxy)


def window(grid: Sequence[int], cube: Sequence[int], window: Sequence[int], *, batch: int = 1, heads: int = 1) -> Selection:
    """Sliding tiles: each cube of the video sees `window` cubes along frames, rows, columns; tokens in cube order.

    grid, cube: tokens; window: cubes; three numbers each. At the edges of the grid the window is moved inside.
    """
    bounds = order_cubes(grid, cube)[2]
    if np.shape(window) != (3,):
        raise ArgumentError(f"window is {window!r}, must be three numbers of cubes: frames, rows, columns")
    opts, given = ffi.new("tess_selector_opts *"), ffi.new("tess_select_in *")
    opts.kind = lib.TESS_SELECT_WINDOW
    for name, values in (("grid", grid), ("cube", cube), ("window", window)):
        setattr(opts, name, [integer(f"{name}[{i}]", v, 1, TOKENS_MAX) for i, v in enumerate(values)])
    shape, kept = sel_shape(batch, heads, int(bounds[-1]), int(bounds[-1]), bounds, bounds)
    return _select(opts, given, shape)


def random(*, heads: int, seq_q: int, q_block: Block, k_block: Block, seq_k: Optional[int] = None, batch: int = 1,
           density: Budget = None, keys: Budget = None, seed: int = 0) -> Selection:
    """A random share of the key blocks for every query block: for controls. The same seed gives the same lists."""
    opts, given = ffi.new("tess_selector_opts *"), ffi.new("tess_select_in *")
    opts.kind = lib.TESS_SELECT_RANDOM
    given.seed = integer("seed", seed, 0, 2**64 - 1)
    shape, kept = sel_shape(batch, heads, seq_q, seq_q if seq_k is None else seq_k, q_block, k_block)
    budget = _budget(given, shape.heads, density, keys)
    made = _select(opts, given, shape)
    del kept, budget
    return made
