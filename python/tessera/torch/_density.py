# SPDX-License-Identifier: Apache-2.0
"""_density.py - densities of heads, recorded from what any method selects, as the CSV that `tessera plan` reads."""
from __future__ import annotations

import os
from typing import Callable, Optional, Union

import numpy as np
import torch

from .._lib import ArgumentError, ArgumentTypeError, integer
from .._selection import Selection


Source = Union[Selection, torch.Tensor, np.ndarray]


def head_densities(source: Source) -> np.ndarray:
    """(heads) of a selection, or of a mask ([batch,] heads, query blocks, key blocks): the selected share, mean over the batch."""
    if isinstance(source, Selection):
        offsets, indices = source.lists()
        bounds_q, bounds_k = source.bounds
        batch, heads, n_q, _ = source.shape
        keys = np.concatenate([[0], np.cumsum(np.diff(bounds_k)[indices])])
        pairs = (keys[offsets[1:]] - keys[offsets[:-1]]).reshape(batch, heads, n_q) * np.diff(bounds_q)
        return pairs.sum((0, 2)) / max(1, batch * source.tokens[0] * source.tokens[1])
    if isinstance(source, torch.Tensor):
        source = source.detach()
        if source.dim() not in (3, 4) or source.dtype != torch.bool:
            raise ArgumentError(f"mask is of {source.dtype} and the shape {tuple(source.shape)}, must be boolean ([batch,] heads, query "
                                "blocks, key blocks)")
        source = source if source.dim() == 4 else source[None]
        return source.double().mean((0, 2, 3)).cpu().numpy()
    mask = np.asarray(source)
    if mask.dtype != bool or mask.ndim not in (3, 4):
        raise ArgumentTypeError(f"source is of {mask.dtype} and the shape {mask.shape}, must be a Selection or a boolean mask ([batch,] "
                                "heads, query blocks, key blocks)")
    return (mask if mask.ndim == 4 else mask[None]).mean((0, 2, 3))


class DensityRecorder:
    """Densities by step, layer and head; save(path) writes the CSV that `tessera plan --density` and plan() read.

    record(source, layer, step=0): a Selection, or a boolean mask ([batch,] heads, query blocks, key blocks) of torch or
    NumPy, True for what is computed. What is recorded twice for a step and layer is averaged. selector(function) is
    the function, recorded: for tessera.integrations.diffusers.enable.

    >>> import numpy as np, tessera.torch
    >>> recorder = tessera.torch.DensityRecorder()
    >>> recorder.record(np.eye(4, dtype=bool)[None], layer=0)
    >>> print(recorder.csv(), end="")
    step,layer,head,density
    0,0,0,0.250000
    """

    def __init__(self):
        self._sums: dict[tuple[int, int], tuple[np.ndarray, int]] = {}

    def record(self, source: Source, layer: int, step: int = 0) -> None:
        """Adds the densities of a layer's heads at a step."""
        key = integer("step", step, 0, 2**31 - 1), integer("layer", layer, 0, 65535)
        density = head_densities(source)
        total, n = self._sums.get(key, (np.zeros(len(density)), 0))
        if n and len(total) != len(density):
            raise ArgumentError(f"source has {len(density)} heads, must have {len(total)} as layer {layer} had before")
        self._sums[key] = total + density, n + 1

    def selector(self, function: Callable) -> Callable:
        """The selector (q, k, layer, step) -> Selection or None, recorded; None counts as dense."""
        def recorded(q, k, layer, step):
            selection = function(q, k, layer, step)
            if selection is None:
                heads = q.shape[1]
                self.record(np.ones((heads, 1, 1), bool), layer, step)
            else:
                self.record(selection, layer, step)
            return selection
        return recorded

    def density(self, step: Optional[int] = None) -> np.ndarray:
        """(layers, heads) of a step, or the mean over all."""
        steps = {s for s, _ in self._sums} if step is None else {step}
        layers = sorted({layer for s, layer in self._sums if s in steps})
        if not layers:
            raise ArgumentError(f"step is {step}, of which nothing was recorded")
        rows = [[t / n for (s, l), (t, n) in self._sums.items() if l == layer and s in steps] for layer in layers]
        return np.array([np.mean(row, axis=0) for row in rows])

    def csv(self) -> str:
        """The lines step,layer,head,density."""
        lines = ["step,layer,head,density"]
        for (step, layer), (total, n) in sorted(self._sums.items()):
            lines += [f"{step},{layer},{head},{value:.6f}" for head, value in enumerate(total / n)]
        return "\n".join(lines) + "\n"

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the CSV; it appears whole or not at all."""
        if not self._sums:
            raise ArgumentError("nothing was recorded, so there is nothing to save")
        part = f"{os.fspath(path)}.part"
        with open(part, "w", encoding="ascii") as file:
            file.write(self.csv())
        os.replace(part, path)
