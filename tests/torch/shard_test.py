#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shard_test.py - a WanTransformer3DModel of 3 heads divided over 2 and 4 processes by plans, against the same model in one process.

    PYTHONPATH=build/release/python python tests/torch/shard_test.py

By tessera.integrations.diffusers.shard, with lengths that divide and others, and by executors under diffusers' own hooks. Output
within 1e-5; gradients, summed over the ranks, within 1e-4 of each tensor's norm.
"""
import diffusers
import numpy as np
import torch
import torch.distributed as dist
from diffusers import WanTransformer3DModel
from diffusers.hooks.context_parallel import apply_context_parallel
from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
from torch.distributed.device_mesh import init_device_mesh

import tessera
import tessera.torch as tt
from processes import run
from tessera.integrations.diffusers import enable, shard

LAYERS, HEADS, BLOCK = 2, 3, 5


def make_model():
    torch.manual_seed(0)
    model = WanTransformer3DModel(num_attention_heads=HEADS, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10,
                                  freq_dim=24, ffn_dim=40, num_layers=LAYERS)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.5 * torch.randn(p.shape) / (p[0].numel() if p.dim() in (2, 5) else 16) ** 0.5)
    return model


def make_inputs(grid):
    generator = torch.Generator().manual_seed(1)
    return {"hidden_states": torch.randn(2, 4, grid[0], 2 * grid[1], 2 * grid[2], generator=generator),
            "timestep": 1000 * torch.rand(2, generator=generator),
            "encoder_hidden_states": torch.randn(2, 7, 10, generator=generator)}


def make_selections(tokens):
    n = -(-tokens // BLOCK)
    return [tessera.Selection.from_mask(np.random.default_rng([7, layer]).random((2, HEADS, n, n)) < 0.5, BLOCK, BLOCK, tokens)
            for layer in range(LAYERS)]


def step(model, given):
    """The output, and the gradients of all parameters and of the input."""
    x = given["hidden_states"].clone().requires_grad_()
    model.zero_grad()
    out = model(**{**given, "hidden_states": x}, return_dict=False)[0]
    out.square().sum().backward()
    return out.detach(), {"dx": x.grad} | {n.removeprefix("_orig_mod."): p.grad.clone() for n, p in model.named_parameters()}


def check(name, got, want):
    out = float((got[0] - want[0]).norm() / want[0].norm())
    assert out < 1e-5, f"{name}: the output is off by {out:.3g}"
    worst = 0.0
    for key, gradient in got[1].items():
        dist.all_reduce(gradient)
        apart = float((gradient - want[1][key]).norm() / want[1][key].norm().clamp(min=1e-30))
        assert apart < 1e-4, f"{name}: the gradient of {key} is off by {apart:.3g}"
        worst = max(worst, apart)
    return f"{name} {max(out, worst):.1e}"


def stock_hooks(model, executors, ranks):
    """Executors under what enable_parallelism installs, which itself fails on CPUs."""
    config = ParallelConfig(context_parallel_config=ContextParallelConfig(ulysses_degree=ranks))
    mesh = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("ring", "ulysses"))
    config.setup(dist.get_rank(), ranks, torch.device("cpu"), mesh=mesh)
    places = {name: what for name, what in model._cp_plan.items() if name != "blocks.*"}  # 0.36 also splits the text
    apply_context_parallel(model, config.context_parallel_config, places)
    return enable(model, executors=executors)


def divide(rank, ranks):
    """Every way to divide the model; returns a line."""
    lines = []
    for grid in ((2, 4, 6), (3, 3, 5)):  # 48 tokens, and 45, which neither 2 nor 4 divides
        given, tokens = make_inputs(grid), grid[0] * grid[1] * grid[2]
        for sparse in (False, True):
            selections = make_selections(tokens) if sparse else [None] * LAYERS
            model = make_model()
            handle = enable(model, lambda q, k, layer, number: selections[layer])
            want = step(model, given)
            handle.disable()
            with torch.no_grad():
                stock = model(**given, return_dict=False)[0]
            one = make_selections(tokens)
            for method in ("fractional", "ring"):
                # Plans are of one sample: of the pairs that any sample selects.
                union = [tessera.Selection.from_mask(s.to_mask().any(0), BLOCK, BLOCK, tokens) for s in one]
                plan = tessera.plan(union, ranks, method=method, head_dim=12, element_bytes=4)
                cuts = sorted(np.random.default_rng(3).integers(0, tokens, ranks - 1).tolist())
                for where in (None, [0, *cuts, tokens])[:2 if sparse else 1]:
                    handle = shard(model, plan, selections=selections, bounds=where)
                    lines.append(check(f"{method}, {tokens} tokens{', sparse' if sparse else ''}", step(model, given), want))
                    assert handle.report()["layers"][1]["density"] == (selections[1].density if sparse else 1.0)
                    handle.disable()
            with torch.no_grad():
                assert torch.equal(model(**given, return_dict=False)[0], stock), "disabled, the model has other bits"
    return "; ".join(lines)


def more(rank, ranks):
    """Under diffusers' own hooks; gradient checkpointing; torch.compile; wrong arguments."""
    given, selections = make_inputs((2, 4, 6)), make_selections(48)
    model = make_model()
    handle = enable(model, lambda q, k, layer, number: selections[layer])
    want = step(model, given)
    handle.disable()
    plan = tessera.plan(np.ones((LAYERS, HEADS)), ranks, tokens=48, block=BLOCK, method="fractional")
    lines = []

    handle = shard(model, plan, selections=selections)
    model.enable_gradient_checkpointing()
    model.train()
    lines.append(check("checkpointing", step(model, given), want))
    model.disable_gradient_checkpointing()
    lines.append(check("compiled", step(torch.compile(model, backend="aot_eager"), given), want))
    torch._dynamo.reset()
    try:
        model(**make_inputs((2, 4, 5)))
        raise AssertionError("40 tokens were taken")
    except ValueError as error:
        assert "the sequence has 40 tokens, must have the 48 of the plan" in str(error), error
    handle.disable()

    executors = [tt.PlanExecutor(plan, layer, selection=selections[layer]) for layer in range(LAYERS)]
    handle = stock_hooks(model, executors, ranks)
    lines.append(check("under diffusers' hooks", step(model, given), want))
    for sentence, call in (("plan is of 2 layers with 4 heads, must be of 2 with 3", lambda: shard(model, tessera.plan(np.ones((2, 4)), ranks))),
                           ("selections has 1 elements", lambda: shard(model, plan, selections=selections[:1]))):
        try:
            call()
            raise AssertionError(f"no error: {sentence}")
        except ValueError as error:
            assert sentence in str(error), error
    return "; ".join(lines)


def main():
    print(f"diffusers {diffusers.__version__}, torch {torch.__version__}", flush=True)
    print(run(2, divide), flush=True)
    print(run(4, divide), flush=True)
    print(run(4, more), flush=True)
    print("all passed")


if __name__ == "__main__":
    main()
