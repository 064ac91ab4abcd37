# SPDX-License-Identifier: Apache-2.0
"""gpu_reference.py - what both backends of GPUs are tested with: cases, and the same in double precision."""
import math

import numpy as np
import torch

import tessera
import tessera.torch as tt

# (batch, heads, queries, keys, head_dim, q_block, k_block, share): ragged ends, bounds, units of any size.
CASES = (
    (2, 2, 70, 130, 64, 32, 1, 0.3),
    (1, 2, 100, 90, 128, 10, 1, 0.5),
    (1, 1, 140, 77, 64, 130, 3, 0.5),
    (1, 2, 80, 150, 64, 40, 64, 0.6),
    (1, 1, 40, 150, 64, 40, 16, 0.6),
    (1, 2, 50, 100, 64, [0, 7, 48, 50], [0, 1, 30, 33, 100], 0.5),
)


def selection_of(case, seed=0):
    """A random selection; its first list is empty."""
    batch, heads, seq_q, seq_k, _, q_block, k_block, share = case
    blocks = [len(b) - 1 if isinstance(b, list) else -(-n // b) for b, n in ((q_block, seq_q), (k_block, seq_k))]
    mask = np.random.default_rng(seed).random((batch, heads, *blocks)) < share
    mask[0, 0, 0] = False
    mask[0, -1, -1] = True
    return tessera.Selection.from_mask(mask, q_block, k_block, seq_q, seq_k)


def tensors_of(case, dtype, seed=0, factor=1.0):
    """q, k, v, do of (batch, heads, tokens, head_dim), token-major, and dlse; scores are up to some 5 times factor."""
    batch, heads, seq_q, seq_k, head_dim = case[:5]
    torch.manual_seed(seed)
    q, k, v, do = (torch.randn(batch, n, heads, head_dim).to(dtype).transpose(1, 2)
                   for n in (seq_q, seq_k, seq_k, seq_q))
    return q * factor, k, v, do, torch.randn(batch, heads, seq_q)


def reference(q, k, v, mask, scale):
    """o and lse in double precision; rows without keys are 0 and -inf."""
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -math.inf)
    top = scores.amax(-1, keepdim=True).detach()
    p = torch.exp(scores - torch.where(top == -math.inf, torch.zeros_like(top), top))
    total = p.sum(-1, keepdim=True)
    none = total == 0
    one = torch.where(none, torch.ones_like(total), total)
    return p @ v / one, torch.where(none, torch.full_like(total, -math.inf), top + torch.log(one))[..., 0]


def want_of(q, k, v, do, dlse, selection, scale):
    """o, lse, dq, dk, dv of the same numbers in double precision."""
    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    o, lse = reference(q, k, v, torch.from_numpy(selection.to_mask(tokens=True)), scale)
    finite = lse.isfinite()
    loss = (o * do.double()).sum() + (lse[finite] * dlse.double()[finite]).sum()
    return o.detach(), lse.detach(), *torch.autograd.grad(loss, (q, k, v))


def run(case, dtype, seed=0, factor=1.0, deterministic=True, workspace=0, use_lse=True, *, backend):
    """o, lse and gradients of the backend, and those in double precision."""
    selection = selection_of(case, seed)
    q, k, v, do, dlse = tensors_of(case, dtype, seed, factor)
    scale = case[4] ** -0.5
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    o, lse = tt.sparse_attention(*given, selection, return_lse=True, backend=backend, deterministic=deterministic,
                                 workspace=workspace)
    finite = lse.isfinite()
    loss = (o.float() * do.float()).sum() + (lse[finite] * dlse[finite]).sum() * use_lse
    got = (o.detach(), lse.detach(), *torch.autograd.grad(loss, given))
    return got, want_of(q, k, v, do, dlse * use_lse, selection, scale)


def error(got, want):
    """The largest error over the largest value; both have infinities and NaN in the same places."""
    got = got.detach().double()
    finite = want.isfinite()
    assert torch.equal(finite, got.isfinite()), "infinities or NaN in other places"
    if not finite.any():
        return 0.0
    return float((got[finite] - want[finite]).abs().max() / want[finite].abs().max().clamp_min(1e-30))


def best_lists(q, k, keep):
    """Ascending indices of the keep largest q . k for each (batch, head, group), in double precision: ties to the
    lowest index, and what is not finite below all."""
    scores = q.double() @ k.double().transpose(-1, -2)
    scores = torch.where(scores.isfinite(), scores, torch.full_like(scores, -math.inf)).reshape(-1, k.shape[2]).numpy()
    lists = []
    for i, row in enumerate(scores):
        lists.append(np.sort(np.argsort(-row, kind="stable")[:keep[i // q.shape[2]]]))
    return lists
