# SPDX-License-Identifier: Apache-2.0
"""_work.py - the work that a plan divides, a tess_work of C, from what the caller has: selections, masks, weights, densities or a
profile."""
from __future__ import annotations

import os
from typing import Optional

import numpy as np

from ._lib import (NULL, ArgumentError, ArgumentTypeError, address, check, context, copy_of, doubles, ffi, int64s, integer, lib,
                   make, path_of)
from ._selection import Selection

_WEIGHT_BLOCKS, _DENSITY_TOKENS, _DENSITY_BLOCK = 512, 65536, 128


def _layers(name: str, array: np.ndarray, dims: int, words: str) -> np.ndarray:
    """The array with its dimension of layers."""
    if array.ndim not in (dims, dims + 1):
        raise ArgumentError(f"{name} has the shape {array.shape}, must be ([layers,] {words})")
    return np.ascontiguousarray(array[None] if array.ndim == dims else array)


def _work_of_selections(ctx, layers):
    for i, layer in enumerate(layers):
        if not isinstance(layer, Selection):
            raise ArgumentTypeError(f"source[{i}] is a {type(layer).__name__}, must be a Selection as source[0]")
    return make("tess_work", lib.tess_work_from_selection, ctx, ffi.new("tess_selection *[]", [s._p for s in layers]), len(layers))


def _work_of_masks(ctx, array: np.ndarray, tokens: Optional[int], block: Optional[int]):
    array = _layers("source", array, 3, "heads, query blocks, key blocks)")
    masks = ffi.new("tess_mask_set *")
    masks.layers, masks.heads, masks.q_blocks, masks.k_blocks = array.shape
    masks.data = ffi.cast("void *", address(array))
    if (tokens is None) != (block is None):
        raise ArgumentError("tokens and block: masks need both or none of them")
    if tokens is not None:
        masks.tokens_q = masks.tokens_k = tokens
        masks.group = masks.unit = block
    return make("tess_work", lib.tess_work_from_masks, ctx, masks)


def _work_of_densities(ctx, array: np.ndarray, tokens: Optional[int], block: Optional[int]):
    array = np.ascontiguousarray(array, np.float64)
    return make("tess_work", lib.tess_work_from_density, ctx, doubles(array), *array.shape, tokens or _DENSITY_TOKENS,
                block or _DENSITY_BLOCK)


def _work_of_weights(ctx, array: np.ndarray, tokens: Optional[int], block: Optional[int], timed: bool):
    if tokens is not None and block is not None:
        if timed:
            raise ArgumentError("source is of weights, whose time on a cluster is not known: give densities (floats) instead")
        most = max(1, int(array.max())) if array.size else 1
        if array.size and array.min() < 0:
            raise ArgumentError(f"source has the weight {array.min()}, must be 0 or more")
        return _work_of_densities(ctx, array / most, tokens, block)
    weights = np.ascontiguousarray(array, np.int64)
    return make("tess_work", lib.tess_work_from_weights, ctx, int64s(weights), *weights.shape, tokens or _WEIGHT_BLOCKS)


def _work_of_file(ctx, path, tokens: Optional[int], block: Optional[int], step: Optional[int]):
    """Masks of a tensor file, or the densities of a profile: those of a step, by default the mean over steps."""
    encoded = path_of("source", path)
    if encoded.endswith((b".npy", b".npz", b".safetensors")):
        opts = ffi.new("tess_mask_opts *")
        opts.group = opts.unit = block or 0
        opts.tokens_q = opts.tokens_k = tokens or 0
        return make("tess_work", lib.tess_work_load, ctx, encoded, opts)
    profile = ffi.gc(make("tess_profile", lib.tess_profile_open, ctx, encoded, NULL), lib.tess_profile_close)
    view = ffi.new("tess_profile_view *")
    check(lib.tess_profile_query(profile, view))
    density = copy_of(view.density, view.steps * view.layers * view.heads, np.float64).reshape(view.steps, view.layers, view.heads)
    if step is None:
        return _work_of_densities(ctx, density.mean(axis=0), tokens, block)
    steps = copy_of(view.step, view.steps, np.int64).tolist()
    if step not in steps:
        raise ArgumentError(f"step is {step}, must be one of the profile's, {steps[0]}..{steps[-1]}")
    return _work_of_densities(ctx, density[steps.index(step)], tokens, block)


def work_of(source, tokens: Optional[int], block: Optional[int], timed: bool, step: Optional[int] = None):
    """The tess_work of a source. timed: a cluster predicts its time."""
    ctx = context(1)
    tokens = None if tokens is None else integer("tokens", tokens, 1, 2**31 - 1)
    block = None if block is None else integer("block", block, 1, 2**31 - 1)
    if isinstance(source, (str, bytes, os.PathLike)):
        made = _work_of_file(ctx, source, tokens, block, step)
    elif isinstance(source, Selection):
        made = _work_of_selections(ctx, [source])
    elif isinstance(source, (list, tuple)) and source and isinstance(source[0], Selection):
        made = _work_of_selections(ctx, source)
    else:
        array = np.asarray(source)
        if array.dtype == bool:
            made = _work_of_masks(ctx, array, tokens, block)
        elif array.dtype.kind in "iu":
            made = _work_of_weights(ctx, _layers("source", array, 1, "heads)"), tokens, block, timed)
        elif array.dtype.kind == "f":
            made = _work_of_densities(ctx, _layers("source", array, 1, "heads)"), tokens, block)
        else:
            raise ArgumentTypeError(f"source is a {type(source).__name__} of {array.dtype}, must be selections, boolean masks, "
                                    "densities (floats), weights (integers) or the path of a profile")
    return ffi.gc(made, lib.tess_work_destroy)
