#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""executor_test.py - tessera.torch.PlanExecutor on 2 to 4 processes with gloo: random plans of all strategies, odd lengths, any
bounds, batches of 1 and 2, against masked attention in fp64; and the bytes that were sent against the plan's.

    PYTHONPATH=build/release/python python tests/torch/executor_test.py [PLANS]
"""
import math
import sys

import numpy as np
import torch
import torch.distributed as dist

import tessera
import tessera.torch as tt
from processes import run

LIMIT = 1e-5
METHODS = {2: ("fractional", "refined", "db-sp", "contiguous", "snake", "lpt", "ring", "selective"),
           3: ("fractional", "refined", "db-sp", "contiguous", "snake", "lpt", "ring", "selective"),
           4: ("fractional", "refined", "db-sp", "contiguous", "snake", "lpt", "ring", "selective", "refined U2 x R2", "refined U2 x C2")}


def reference(q, k, v, mask, do):
    """o and the gradients of q, k, v in fp64; (batch, tokens, heads, head_dim)."""
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(-1, keepdim=True).detach()
    p = torch.exp(scores - torch.where(top.isinf(), torch.zeros_like(top), top))
    total = p.sum(-1, keepdim=True)
    p = p / torch.where(total == 0, torch.ones_like(total), total)
    o = torch.einsum("bhqk,bkhd->bqhd", p, v)
    return (o.detach(), *torch.autograd.grad((o * do).sum(), (q, k, v)))


def far(got, want):
    """The largest difference over the largest number of the whole."""
    return float((got.double() - want[0]).abs().max()) / max(float(want[1]), 1e-30) if got.numel() else 0.0


def case(rng, ranks, number):
    """A random layer and its plan, the same on every rank."""
    methods = METHODS[ranks]
    method = methods[number % len(methods)]
    heads = int(rng.integers(ranks, 7)) if method not in ("db-sp", "contiguous", "snake") else ranks * int(rng.integers(1, 3))
    if method.startswith("refined U2"):
        heads = 2 * int(rng.integers(1, 4))
    block = int(rng.integers(3, 20))
    tokens = int(rng.integers(4 * block, 9 * block))
    n = -(-tokens // block)
    mask = rng.random((1, heads, n, n)) < rng.random((1, heads, 1, 1))
    mask[0, rng.integers(heads)] = False  # a head without work
    if rng.random() < 0.3:
        mask[:] = False  # a rank without work, and none at all
        mask[0, 0, 0, 0] = True
    selection = tessera.Selection.from_mask(mask, block, block, tokens)
    head_dim, batch = int(rng.choice([8, 12, 16])), int(rng.integers(1, 3))
    plan = tessera.plan(selection, ranks, method=method, head_dim=head_dim, element_bytes=4)
    cuts = np.sort(rng.integers(0, tokens + 1, ranks - 1))
    bounds = [None, None, [0, *cuts, tokens], [0, *[0] * (ranks - 1), tokens]][int(rng.integers(4))]
    return method, selection, plan, bounds, batch, head_dim


def run_case(rng, rank, ranks, number):
    """(worst difference, bytes of the plan for the batch, those of its bits, bytes that this rank sent, method)."""
    method, selection, plan, bounds, batch, head_dim = case(rng, ranks, number)
    executor = tt.PlanExecutor(plan, 0, bounds=bounds, selection=selection)
    begin, end = executor.bounds[rank], executor.bounds[rank + 1]
    torch.manual_seed(number)
    q, k, v, do = (torch.randn(batch, plan.tokens, plan.heads, head_dim) for _ in range(4))
    want = reference(q, k, v, torch.from_numpy(selection.to_mask(tokens=True)), do)
    own = [x[:, begin:end].clone().requires_grad_() for x in (q, k, v)]
    o = executor(*own)
    sent = executor.bytes_sent
    gradients = torch.autograd.grad((o * do[:, begin:end]).sum(), own)
    worst = max(far(a, (b[:, begin:end], b.abs().max())) for a, b in zip((o.detach(), *gradients), want))
    # A selective layer asks for keys by a bit for each block and head, padded to bytes for each owner: the plan counts
    # these bits, which lists known in advance save.
    bits = batch * plan.heads * (plan.blocks[1] // 8 + ranks) if "selective" in method or " C" in method else 0
    return worst, plan.bytes(0) * batch if bounds is None else None, bits, sent, method


def random_plans(rank, ranks, count):
    """Every strategy in turn; returns a line."""
    worst, off, compared = 0.0, {}, 0
    rng = np.random.default_rng(ranks)
    for number in range(count):
        error, wanted, bits, sent, method = run_case(rng, rank, ranks, number)
        numbers = torch.tensor([error, sent], dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        assert float(numbers[0]) < LIMIT, f"plan {number}, {method}: off by {float(numbers[0]):.3g}, must be below {LIMIT:g}"
        worst = max(worst, float(numbers[0]))
        most = int(numbers[1])
        if wanted is None:  # the plan counts bytes of even shards
            continue
        compared += 1
        assert wanted - bits <= most <= wanted, f"plan {number}, {method}: {most} bytes were sent, the plan says {wanted}"
        if most != wanted:
            off[method] = max(off.get(method, 0), wanted - most)
    return f"{count} plans, the worst off by {worst:.1e}; bytes of {compared} are the plan's, but for {off or 'none'}"


def some_features(rank, ranks, count):
    """bf16 rows with fp32 lse, a kernel of the caller, the equal-split exchange, wrong arguments."""
    heads, tokens, block = ranks * 2, 60, 10
    rng = np.random.default_rng(5)
    selection = tessera.Selection.from_mask(rng.random((1, heads, 6, 6)) < 0.6, block, block, tokens)
    torch.manual_seed(1)
    q, k, v, do = (torch.randn(2, tokens, heads, 16) for _ in range(4))
    want = reference(q, k, v, torch.from_numpy(selection.to_mask(tokens=True)), do)
    mask = selection.to_mask()[0]

    def attend(head, q_ids, k_ids, q, k, v):
        part = np.repeat(np.repeat(mask[head][np.ix_(q_ids, k_ids)], block, 0), block, 1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~torch.from_numpy(part), -1e30)
        return torch.softmax(scores, -1) * torch.from_numpy(part).any(-1, keepdims=True) @ v, torch.logsumexp(scores, -1)

    for method, options in (("refined", {"equal_heads": True, "whole_heads": True}), ("fractional", {}), ("ring", {})):
        plan = tessera.plan(selection, ranks, method=method, head_dim=16, element_bytes=4, **options)
        executor = tt.PlanExecutor(plan, 0, selection=selection)
        assert (executor._q.splits == (None, None)) == (method == "refined" and tokens % ranks == 0), method
        begin, end = executor.bounds[rank], executor.bounds[rank + 1]
        own = [x[:, begin:end] for x in (q, k, v)]
        expected = want[0][:, begin:end]
        assert far(executor(*own, attend=attend), (expected, want[0].abs().max())) < LIMIT, method
        o, lse = executor(*(x.bfloat16() for x in own), return_lse=True)
        assert o.dtype == torch.bfloat16 and lse.dtype == torch.float32 and lse.shape == (2, end - begin, heads)
        assert far(o, (expected, want[0].abs().max())) < 2 ** -6, method  # inputs and output have 8 bits
    unknown = tessera.plan(np.full((1, heads), 0.5), ranks, tokens=tokens, block=block, method="selective", union_shares=np.ones((1, ranks + 1)))
    for sentence, call in (
            (f"must be (batch, {end - begin}, {heads}, head_dim) on rank {rank}", lambda: executor(q, k, v)),
            ("attend returned o alone, must return (o, lse) for a ring", lambda: executor(*own, attend=lambda *x: x[3])),
            (f"plan is for {ranks + 1} ranks, must be for the {ranks}", lambda: tt.PlanExecutor(tessera.plan(selection, ranks + 1), 0)),
            ("a selective layer needs the masks it was planned for", lambda: tt.PlanExecutor(unknown, 0))):
        try:
            call()
            raise AssertionError(f"no error: {sentence}")
        except ValueError as error:
            assert sentence in str(error), error
    return "bf16 rows, lse, a kernel of the caller, equal splits"


def main():
    plans = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"torch {torch.__version__}", flush=True)
    for ranks in (2, 3, 4):
        print(run(ranks, random_plans, -(-plans // 3)), flush=True)
    for ranks in (2, 3, 4):
        print(run(ranks, some_features, 0), flush=True)
    print("all passed")


if __name__ == "__main__":
    main()
