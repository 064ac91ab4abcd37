# SPDX-License-Identifier: Apache-2.0
"""_random.py - noise as the command draws it."""
from __future__ import annotations

import numpy as np

from ._lib import check, floats, integer, lib


def random_normal(seed: int, stream: int, n: int, index: int = 0) -> np.ndarray:
    """n normal numbers, mean 0 and variance 1, float32: numbers index, index + 1, ... of the stream (seed, stream), as the
    command draws them on every machine."""
    out = np.empty(integer("n", n, 0, 2**62), np.float32)
    check(lib.tess_random_normal(integer("seed", seed, 0, 2**64 - 1), integer("stream", stream, 0, 2**64 - 1),
                                 integer("index", index, 0, 2**64 - 1), floats(out), len(out)))
    return out
