#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""diffusers_test.py - tessera.integrations.diffusers on a tiny WanTransformer3DModel: output and all gradients against masked SDPA.

    PYTHONPATH=build/release/python python tests/torch/diffusers_test.py
"""
import unittest

import diffusers
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from diffusers.models.transformers import transformer_wan

import tessera
import tessera.torch as tt
from tessera.integrations.diffusers import VerifyError, enable

diffusers.utils.logging.set_verbosity_error()
TOKENS, BLOCK = 2 * 4 * 6, 16


def model(head_dim=12, seed=0):
    torch.manual_seed(seed)
    made = WanTransformer3DModel(num_attention_heads=3, attention_head_dim=head_dim, in_channels=4, out_channels=4, text_dim=10,
                                 freq_dim=24, ffn_dim=40, num_layers=2)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.5 * torch.randn(p.shape) / (p[0].numel() if p.dim() in (2, 5) else 16) ** 0.5)
    return made


def inputs(batch=2):
    generator = torch.Generator().manual_seed(1)
    return {"hidden_states": torch.randn(batch, 4, 2, 8, 12, generator=generator),
            "timestep": 1000 * torch.rand(batch, generator=generator),
            "encoder_hidden_states": torch.randn(batch, 5, 10, generator=generator)}


def selector(q, k, layer, step):
    rng = np.random.default_rng([layer, step])
    n = -(-q.shape[2] // BLOCK)
    return tessera.Selection.from_mask(rng.random((q.shape[0], q.shape[1], n, n)) < 0.6, BLOCK, BLOCK, q.shape[2])


def run(transformer, given):
    """The output, and the gradients of all parameters and of the input."""
    x = given["hidden_states"].clone().requires_grad_()
    transformer.zero_grad()
    out = transformer(**{**given, "hidden_states": x}, return_dict=False)[0]
    out.square().sum().backward()
    return {"out": out.detach(), "dx": x.grad} | {n: p.grad.clone() for n, p in transformer.named_parameters()}


class MaskedSdpa:
    """diffusers' own processors with the selector's mask put into every self attention by SDPA."""

    def __init__(self, step):
        self.step, self.layer = step, 0
        self.stock = transformer_wan.dispatch_attention_fn

    def attend(self, q, k, v, attn_mask=None, **more):
        if q.shape[1] != k.shape[1]:  # the text
            return self.stock(q, k, v, attn_mask=attn_mask, **more)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mask = torch.from_numpy(selector(q, k, self.layer, self.step).to_mask(tokens=True))
        self.layer += 1
        empty = ~mask.any(-1, keepdim=True)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask | empty)
        return torch.where(empty, torch.zeros_like(o), o).transpose(1, 2)

    def __enter__(self):
        transformer_wan.dispatch_attention_fn = self.attend

    def __exit__(self, *_):
        transformer_wan.dispatch_attention_fn = self.stock


def farthest(got, want):
    assert got.keys() == want.keys()
    return {name: float((got[name] - want[name]).norm() / want[name].norm().clamp(min=1e-30)) for name in want}


def _recall_of(q, k, selection):
    """Recall over the query blocks of a spot check, by the library."""
    blocks, n_q = selection.bounds[0], selection.shape[2]
    rows = [range(blocks[g], blocks[g + 1]) for g in sorted({0, n_q // 2})]
    part = tessera.Selection.from_mask(selection.to_mask()[:, :, sorted({0, n_q // 2})], BLOCK, BLOCK, BLOCK * len(rows), q.shape[2])
    q = torch.cat([q[:, :, list(r)] for r in rows], 2)
    padded = [F.pad(x, (0, -x.shape[3] % 8)).numpy() for x in (q, k)]  # the library takes multiples of 8
    return part.measure(*padded, scale=q.shape[3] ** -0.5).recall


class Adapter(unittest.TestCase):
    def check(self, got, want):
        apart = farthest(got, want)
        self.assertLess(apart.pop("out"), 1e-5)
        worst = max(apart, key=apart.get)
        self.assertLess(apart[worst], 1e-4, worst)

    def test_output_and_gradients_are_those_of_masked_sdpa(self):
        for head_dim in (12, 24):
            transformer = model(head_dim)
            with MaskedSdpa(0):
                want = run(transformer, inputs())
            handle = enable(transformer, selector)
            self.check(run(transformer, inputs()), want)
            with MaskedSdpa(1):
                handle.disable()
                want = run(transformer, inputs())
            handle = enable(transformer, lambda q, k, layer, step: selector(q, k, layer, step + 1))
            self.check(run(transformer, inputs()), want)

    def test_disabled_it_has_the_stock_bits(self):
        transformer = model()
        with torch.no_grad():
            before = transformer(**inputs(), return_dict=False)[0]
            handle = enable(transformer, selector)
            sparse = transformer(**inputs(), return_dict=False)[0]
            handle.disable()
            after = transformer(**inputs(), return_dict=False)[0]
        self.assertTrue(torch.equal(before, after))
        self.assertFalse(torch.equal(before, sparse))

    def test_dense_and_chosen_layers(self):
        transformer = model()
        want = run(transformer, inputs())
        handle = enable(transformer)
        self.check(run(transformer, inputs()), want)
        handle.disable()
        handle = enable(transformer, lambda q, k, layer, step: None, layers=[1])
        self.check(run(transformer, inputs()), want)
        report = handle.report()
        self.assertEqual([x["layer"] for x in report["layers"]], [1])
        self.assertIn("selector returned None", report["layers"][0]["fallback"])

    def test_the_report_has_what_was_selected(self):
        transformer = model()
        recorder, given = tt.DensityRecorder(), {}

        def watched(q, k, layer, step):
            given.setdefault(layer, (q.clone(), k.clone()))
            return selector(q, k, layer, step)

        handle = enable(transformer, recorder.selector(watched))
        with torch.no_grad():
            for _ in range(3):
                transformer(**inputs())
        report = handle.report()
        self.assertEqual(report["step"], 3)
        for layer, entry in enumerate(report["layers"]):
            q = torch.empty(2, 3, TOKENS, 12)
            self.assertAlmostEqual(entry["density"], selector(q, q, layer, 2).density)
            q, k = given[layer]
            self.assertAlmostEqual(entry["recall"], _recall_of(q, k, selector(q, k, layer, 0)), places=4)
            self.assertGreater(entry["time"], 0)
            self.assertIsNone(entry["fallback"])
        self.assertEqual(recorder.density().shape, (2, 3))

    def test_verify_names_the_layer_whose_mask_was_not_applied(self):
        transformer = model()
        handle = enable(transformer, selector)
        self.assertLess(max(handle.verify(**inputs())), 1e-5)
        handle.verify()
        with torch.no_grad():
            transformer(**inputs())
        handle.disable()

        def ignores(q, k, v, selection):
            return F.scaled_dot_product_attention(q, k, v)

        handle = enable(transformer, selector, kernel=ignores, layers=[1])
        handle.verify()
        with self.assertRaisesRegex(VerifyError, r"blocks\.1\.attn1: the mask was not applied"):
            transformer(**inputs())
        handle.disable()
        handle = enable(transformer, selector, kernel="flex")
        self.assertLess(max(handle.verify(**inputs())), 1e-5)

    def test_gradient_checkpointing(self):
        transformer = model()
        handle = enable(transformer, selector)
        want = run(transformer, inputs())
        handle.disable()
        transformer.enable_gradient_checkpointing()
        transformer.train()
        calls = []

        def counted(q, k, layer, step):
            calls.append((layer, step))
            return selector(q, k, layer, step)

        handle = enable(transformer, counted)
        self.check(run(transformer, inputs()), want)
        self.assertEqual(calls, [(0, 0), (1, 0)])  # not again when recomputed
        run(transformer, inputs())
        self.assertEqual(calls[2:], [(0, 1), (1, 1)])

    def test_a_compiled_model_takes_new_selections(self):
        transformer = model()
        handle = enable(transformer, selector)
        want = [run(transformer, inputs()) for _ in range(2)]
        handle.disable()
        handle = enable(transformer, selector)
        torch._dynamo.reset()
        graphs = []

        def count(graph, given):
            graphs.append(graph)
            return torch._dynamo.lookup_backend("aot_eager")(graph, given)

        compiled = torch.compile(transformer, backend=count, fullgraph=True)
        for step in range(2):
            got = run(compiled, inputs())
            self.check({n.removeprefix("_orig_mod."): x for n, x in got.items()}, want[step])
        self.assertEqual(len(graphs), 1)  # one graph, and a new selection does not compile again

    def test_wrong_arguments_are_named(self):
        transformer = model()
        for sentence, call in (
                ("transformer is a Linear, must be a WanTransformer3DModel", lambda: enable(torch.nn.Linear(1, 1))),
                ("layers is \\[2\\], must be different numbers of 0..1", lambda: enable(transformer, selector, layers=[2])),
                ("kernel is 'cuda', must be", lambda: enable(transformer, selector, kernel="cuda")),
                ("executors has 1 elements, must have one for each of the 2", lambda: enable(transformer, executors=[None]))):
            with self.assertRaisesRegex((ValueError, TypeError), sentence):
                call()
        handle = enable(transformer, lambda q, k, layer, step: selector(q[:1], k[:1], layer, step))
        with self.assertRaisesRegex(ValueError, "selector returned a selection of batch and heads \\(1, 3\\)"), torch.no_grad():
            transformer(**inputs())
        handle.disable()


if __name__ == "__main__":
    print(f"diffusers {diffusers.__version__}, torch {torch.__version__}")
    unittest.main()
