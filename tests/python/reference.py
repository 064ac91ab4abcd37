# SPDX-License-Identifier: Apache-2.0
"""reference.py - attention in double precision over a mask of tokens, and random selections to test with."""
import numpy as np

import tessera


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dense_attention(q, k, v, mask=None, scale=None):
    """(o, lse, p) in double precision; mask (batch, heads, queries, keys) of tokens."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(np.isfinite(top), top, 0))[..., 0]
    return np.einsum("bhqk,bhkd->bhqd", p, v), lse, p


def dense_backward(do, q, k, v, mask=None, scale=None, dlse=None):
    """(dq, dk, dv) in double precision."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o, _, p = dense_attention(q, k, v, mask, scale)
    do, q, k, v = (x.astype(np.float64) for x in (do, q, k, v))
    dp = np.einsum("bhqd,bhkd->bhqk", do, v)
    ds = p * (dp - (do * o).sum(-1, keepdims=True) + (0 if dlse is None else dlse.astype(np.float64)[..., None]))
    return (scale * np.einsum("bhqk,bhkd->bhqd", ds, k), scale * np.einsum("bhqk,bhqd->bhkd", ds, q),
            np.einsum("bhqk,bhqd->bhkd", p, do))


def random_bounds(rng, tokens, blocks):
    cuts = np.sort(rng.choice(np.arange(1, tokens), blocks - 1, replace=False))
    return np.concatenate([[0], cuts, [tokens]]).astype(np.int64)


def random_selection(seed, batch=2, heads=3, seq_q=150, seq_k=130, bounds=False, density=0.4):
    """(selection, mask of blocks, mask of tokens); some query blocks select nothing."""
    rng = np.random.default_rng(seed)
    q_block, k_block = (random_bounds(rng, seq_q, 7), random_bounds(rng, seq_k, 9)) if bounds else (32, 16)
    n_q, n_k = (7, 9) if bounds else (-(-seq_q // 32), -(-seq_k // 16))
    mask = rng.random((batch, heads, n_q, n_k)) < density
    mask[0, 0, 1] = False
    selection = tessera.Selection.from_mask(mask, q_block, k_block, seq_q, seq_k)
    sizes = [np.diff(b) for b in selection.bounds]
    return selection, mask, np.repeat(np.repeat(mask, sizes[0], 2), sizes[1], 3)
