#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples_test.py - the examples for xDiT and vLLM-Omni, run against the interface of these projects alone.

    PYTHONPATH=build/release/python python tests/torch/examples_test.py
"""
import os
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F

import tessera
import tessera.torch
from processes import run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
from vllm_omni_strategy import BalancedUlysses
from xdit_head_balance import use_planner


def xdit():
    """A module with xDiT's names: what it calls by the module's own name is the planner afterwards, compiled too."""
    module = types.ModuleType("head_balance")
    exec("import torch\n"
         "def compute_perm(cost, world_size):\n"
         "    return torch.arange(cost.shape[0])\n"
         "def revert_head_balance(glob, head_perm, world_size):\n"
         "    head_perm.copy_(compute_perm(glob, world_size))\n", module.__dict__)
    stock = use_planner(module)
    assert stock(torch.zeros(3), 1).tolist() == [0, 1, 2]
    cost = torch.tensor([9.0, 8.0, 1.0, 2.0])
    for call in (module.revert_head_balance, torch.compile(module.revert_head_balance, backend="eager", fullgraph=True)):
        perm = torch.zeros(4, dtype=torch.long)
        call(cost, perm, 2)
        assert sorted(perm.tolist()) == [0, 1, 2, 3] and float(cost[perm[:2]].sum()) == 10.0, perm
    print("xDiT: compute_perm is the planner's")


def omni_layer(strategy, q, k, v):
    """What vLLM-Omni's Attention.forward does: pre_attention, the kernel, post_attention."""
    q, k, v, metadata, context = strategy.pre_attention(q, k, v, None)
    assert metadata is None and context.name == strategy.name and strategy.enabled
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    return strategy.post_attention(out, context)


def omni(rank, ranks):
    heads, tokens = 5, 61
    density = np.array([0.9, 0.1, 0.2, 0.3, 0.1])
    plan = tessera.plan(density, ranks, tokens=tokens, block=8, method="refined", whole_heads=True)
    strategy = BalancedUlysses(plan, 0)
    begin, end = np.linspace(0, tokens, ranks + 1).astype(int)[rank:rank + 2]
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, tokens, heads, 16) for _ in range(3))
    want = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)[:, begin:end]
    got = omni_layer(strategy, *(x[:, begin:end] for x in (q, k, v)))
    apart = float((got - want).abs().max())
    assert got.shape == want.shape and apart < 1e-6, apart
    try:
        BalancedUlysses(tessera.plan(density, ranks, tokens=tokens, block=8, method="fractional"), 0)
        raise AssertionError("a plan that cuts heads was taken")
    except ValueError as error:
        assert "layer 0 is fractional, must be of whole heads" in str(error), error
    return f"vLLM-Omni: heads {strategy.heads} on rank 0, apart by {apart:.1e}"


if __name__ == "__main__":
    xdit()
    for count in (2, 3):
        print(run(count, omni))
    print("all passed")
