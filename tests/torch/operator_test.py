#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""operator_test.py - tessera.torch against masked attention in fp64: the operator, FlexAttention, orders of heads, densities.

    PYTHONPATH=build/release/python python tests/torch/operator_test.py
"""
import csv
import gc
import glob
import math
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
from torch.nn.attention.flex_attention import flex_attention

import tessera
import tessera.torch as tt

PROFILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "shared", "reference", "sparsity")


def random_selection(rng, batch, heads, seq_q, seq_k, block_q, block_k, share=0.4):
    mask = rng.random((batch, heads, -(-seq_q // block_q), -(-seq_k // block_k))) < share
    return tessera.Selection.from_mask(mask, block_q, block_k, seq_q, seq_k)


def reference(q, k, v, selection, scale=None):
    """o and lse in fp64; rows without keys are 0 and -inf."""
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if selection is not None:
        scores = scores.masked_fill(~torch.from_numpy(selection.to_mask(tokens=True)), -math.inf)
    top = scores.amax(-1, keepdim=True).detach()
    p = torch.exp(scores - torch.where(top.isinf(), torch.zeros_like(top), top))
    total = p.sum(-1, keepdim=True)
    none = total == 0
    o = p @ v / torch.where(none, torch.ones_like(total), total)
    lse = torch.where(none, torch.full_like(total, -math.inf), top + torch.log(torch.where(none, torch.ones_like(total), total)))
    return o, lse[..., 0]


def distance(got, want):
    want = want.double()
    return float((got.detach().double() - want).norm() / max(float(want.norm()), 1e-30))


class Operator(unittest.TestCase):
    def check(self, dtype, limit, head_dim, selection, batch=2, heads=3, seq_q=60, seq_k=75, use_lse=True, scale=None):
        torch.manual_seed(head_dim)
        q = torch.randn(batch, seq_q, heads, head_dim).to(dtype).transpose(1, 2).requires_grad_()
        k, v = (torch.randn(batch, heads, seq_k, head_dim).to(dtype).requires_grad_() for _ in range(2))
        o, lse = tt.sparse_attention(q, k, v, selection, scale=scale, return_lse=True)
        self.assertEqual((o.shape, o.dtype, lse.dtype), (q.shape, dtype, torch.float32))
        do, dlse = torch.randn(o.shape), torch.randn(lse.shape)
        finite = lse.isfinite()
        loss = (o.float() * do).sum() + (lse[finite] * dlse[finite]).sum() * use_lse
        got = torch.autograd.grad(loss, (q, k, v))
        wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
        want_o, want_lse = reference(*wide, selection, scale)
        self.assertTrue(torch.equal(finite, want_lse.isfinite()))
        want = torch.autograd.grad((want_o * do).sum() + (want_lse[finite] * dlse[finite]).sum() * use_lse, wide)
        self.assertLess(distance(o, want_o), limit)
        self.assertLess(distance(lse[finite], want_lse[finite]), 1e-6)
        for name, a, b in zip("qkv", got, want):
            self.assertEqual(a.dtype, dtype)
            self.assertLess(distance(a, b), limit, f"gradient of {name}")

    def test_outputs_and_gradients_are_those_of_masked_fp64(self):
        rng = np.random.default_rng(1)
        for head_dim in (8, 12, 64, 100):  # 12 and 100 are padded
            for selection in (None, random_selection(rng, 2, 3, 60, 75, 16, 8), random_selection(rng, 2, 3, 60, 75, 1, 1)):
                # fp32 sums of up to 100 terms: some ten roundings of 6e-8
                self.check(torch.float32, 1e-6, head_dim, selection)
        self.check(torch.float32, 1e-6, 24, None, scale=0.3, use_lse=False)

    def test_halves_are_rounded_once_on_the_way_out(self):
        selection = random_selection(np.random.default_rng(2), 2, 3, 60, 75, 16, 16)
        self.check(torch.bfloat16, 2 ** -8, 64, selection)  # half an ulp of 8 bits
        self.check(torch.float16, 2 ** -11, 12, selection)

    def test_a_query_without_keys_is_zero(self):
        q = torch.randn(1, 1, 32, 8, requires_grad=True)
        selection = tessera.Selection.from_mask(np.array([[[0, 0], [1, 0]]], bool), 16, 16, 32)
        o, lse = tt.sparse_attention(q, q, q, selection, return_lse=True)
        self.assertEqual(o[:, :, :16].detach().abs().max().item(), 0.0)
        self.assertTrue(bool((lse[:, :, :16] == -math.inf).all()))
        o.sum().backward()
        self.assertTrue(bool(q.grad.isfinite().all()))

    def test_compensation_is_that_of_the_arrays(self):
        selection = random_selection(np.random.default_rng(12), 1, 2, 64, 64, 16, 16)
        q, k, v, do = (torch.randn(1, 2, 64, 16) for _ in range(4))
        for count in (0, 1, True, 4, 64):
            grad = [x.clone().requires_grad_() for x in (q, k, v)]
            o, lse = tt.sparse_attention(*grad, selection, return_lse=True, compensate=count)
            arrays = [x.numpy() for x in (q, k, v)]
            want_o, want_lse = tessera.attention(*arrays, selection, return_lse=True, compensate=count)
            np.testing.assert_array_equal(o.detach().numpy(), want_o)
            for got, want in zip(torch.autograd.grad(o, grad, do),
                                 tessera.attention_backward(do.numpy(), *arrays, want_o, want_lse, selection, compensate=count)):
                np.testing.assert_array_equal(got.numpy(), want)

    def test_derivatives_that_are_not_there_are_refused(self):
        q = torch.randn(1, 2, 32, 16)
        x = q.clone().requires_grad_()
        gradient, = torch.autograd.grad(tt.sparse_attention(x, x, x).square().sum(), x, create_graph=True)
        plain, = torch.autograd.grad(tt.sparse_attention(x, x, x).square().sum(), x)
        self.assertTrue(torch.equal(gradient, plain))
        with self.assertRaisesRegex(NotImplementedError, "create_graph: the gradients of tessera's attention cannot be differentiated again"):
            torch.autograd.grad(gradient.sum(), x)
        with self.assertRaisesRegex(NotImplementedError, "has no forward-mode derivative"):
            torch.func.jvp(lambda x: tt.sparse_attention(x, x, x), (q,), (q,))
        with self.assertRaisesRegex(NotImplementedError, "inside a transform of torch.func"):
            torch.func.grad(lambda x: tt.sparse_attention(x, x, x).sum())(q)

    def test_opcheck(self):
        selection = random_selection(np.random.default_rng(3), 1, 2, 48, 48, 16, 16)
        for dtype in (torch.float32, torch.bfloat16):
            for head_dim in (16, 12):
                q, k, v = (torch.randn(1, 48, 2, head_dim).to(dtype).transpose(1, 2).requires_grad_(dtype == torch.float32) for _ in range(3))
                torch.library.opcheck(torch.ops.tessera.attend.default, (q, k, v, tt.handle(selection), 0.25, 0))
        torch.library.opcheck(torch.ops.tessera.attend.default, (q, k, v, None, 0.25, 1))

    def test_gradcheck(self):
        selection = random_selection(np.random.default_rng(4), 1, 2, 24, 24, 8, 8, 0.6)
        q, k, v = (torch.randn(1, 2, 24, 8, requires_grad=True) for _ in range(3))
        number = tt.handle(selection)
        self.assertTrue(torch.autograd.gradcheck(lambda *x: torch.ops.tessera.attend(*x, number, 0.3, 0)[0], (q, k, v),
                                                 eps=1e-2, atol=2e-3, rtol=1e-2, fast_mode=True))

    def test_the_handle_owns_its_selection_until_backward(self):
        q = torch.randn(1, 2, 48, 16, requires_grad=True)
        o = tt.sparse_attention(q, q, q, random_selection(np.random.default_rng(5), 1, 2, 48, 48, 16, 16))
        gc.collect()
        o.sum().backward()
        number = tt.handle(random_selection(np.random.default_rng(6), 1, 2, 48, 48, 16, 16)).clone()
        gc.collect()
        with self.assertRaisesRegex(ValueError, "handle is of a selection that no longer exists"):
            torch.ops.tessera.attend(q, q, q, number, 0.25, 0)

    def test_new_selections_do_not_compile_again(self):
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            return graph.forward

        q = torch.randn(1, 2, 48, 16)
        compiled = torch.compile(lambda x, n: torch.ops.tessera.attend(x * 2, x, x, n, 0.25, 0)[0] + 1, backend=count, fullgraph=True)
        for seed in range(4):
            selection = random_selection(np.random.default_rng(seed), 1, 2, 48, 48, 16, 16)
            got = compiled(q, tt.handle(selection))
            self.assertTrue(torch.equal(got, tt.sparse_attention(q * 2, q, q, selection, scale=0.25) + 1))
        self.assertEqual(len(graphs), 1)
        trained = torch.compile(lambda x, n: torch.ops.tessera.attend(x, x, x, n, 0.25, 0)[0], backend="aot_eager", fullgraph=True)
        x, y = q.clone().requires_grad_(), q.clone().requires_grad_()
        trained(x, tt.handle(selection)).square().sum().backward()
        tt.sparse_attention(y, y, y, selection, scale=0.25).square().sum().backward()
        self.assertTrue(torch.equal(x.grad, y.grad))

    def test_wrong_arguments_are_named(self):
        q = torch.randn(1, 2, 16, 8)
        for sentence, call in (
                ("k has the shape \\(1, 2, 16, 16\\), must be \\(1, 2, keys, 8\\)", lambda: tt.sparse_attention(q, torch.randn(1, 2, 16, 16), q)),
                ("q has the shape \\(2, 16, 8\\), must be \\(batch, heads", lambda: tt.sparse_attention(q[0], q[0], q[0])),
                ("must all be of float32", lambda: tt.sparse_attention(q, q.half(), q)),
                ("head_dim of 264, must be 1..256", lambda: tt.sparse_attention(*[torch.randn(1, 1, 4, 264)] * 3)),
                ("selection is a list, must be", lambda: tt.sparse_attention(q, q, q, [1])),
                ("q is a ndarray, must be a torch.Tensor", lambda: tt.sparse_attention(q.numpy(), q, q)),
                ("scale is 0, must be positive and finite", lambda: tt.sparse_attention(q, q, q, scale=0)),
                ("scale is 'x', must be a number", lambda: tt.sparse_attention(q, q, q, scale="x")),
                ("compensate is 65, must be 0..64", lambda: tt.sparse_attention(q, q, q, compensate=65)),
                ("compensate is 0.5, must be an integer", lambda: tt.sparse_attention(q, q, q, compensate=0.5)),
                ("q is on meta, must be on the CPU", lambda: tt.sparse_attention(*[q.to("meta")] * 3))):
            with self.assertRaisesRegex((ValueError, TypeError), sentence):
                call()


class Process(unittest.TestCase):
    def run_python(self, text):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_workers_of_a_data_loader_compute_the_same_bits(self):
        self.run_python("""
import numpy as np, torch, tessera, tessera.torch as tt
torch.set_num_threads(2)
tessera.set_threads(2)
q = torch.randn(1, 4, 512, 32)
selection = tessera.random(heads=4, seq_q=512, q_block=16, k_block=16, density=.3)
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return tt.sparse_attention(q + i, q, q, selection)[0]
want = [Samples()[i] for i in range(4)]
for i, got in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=None, num_workers=2, multiprocessing_context="fork")):
    assert torch.equal(got, want[i]), i
""")

    def test_import_does_not_import_the_compiler(self):
        self.run_python("""
import sys, time, torch
began = time.process_time()
import tessera.torch as tt
seconds = time.process_time() - began
q = torch.randn(1, 2, 16, 8, requires_grad=True)
tt.sparse_attention(q, q, q).sum().backward()
tt.compute_perm(torch.ones(4), 2)
loaded = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
assert not loaded and seconds < 0.5, (loaded, seconds)
""")

    def test_exit_with_a_graph_that_has_not_run_backward(self):
        self.run_python("""
import torch, tessera, tessera.torch as tt
q = torch.randn(1, 2, 512, 16, requires_grad=True)
number = tt.handle(tessera.random(heads=2, seq_q=512, q_block=64, k_block=64, density=.5))
o = torch.ops.tessera.attend(q, q, q, number, 0.25, 0)[0]
class Cycle: pass
cycle = Cycle(); cycle.itself = cycle; cycle.o = o; cycle.number = number
""")


class Flex(unittest.TestCase):
    def test_uncompiled_flex_attention_computes_the_selection(self):
        rng = np.random.default_rng(7)
        for tokens, block in ((256, 64), (500, 64), (130, 32)):
            selection = random_selection(rng, 1, 2, tokens, tokens, block, block)
            block_mask, options = tt.to_flex(selection, "cpu")
            self.assertEqual(options, {})
            q, k, v = (torch.randn(1, 2, tokens, 16) for _ in range(3))
            want, _ = reference(q.double(), k.double(), v.double(), selection)
            self.assertLess(distance(flex_attention(q, k, v, block_mask=block_mask), want), 1e-6)
            o, lse = tt.flex_kernel(q, k, v, selection)
            self.assertLess(distance(o, want), 1e-6)

    def test_one_mask_takes_many_selections(self):
        rng = np.random.default_rng(8)
        mask = tt.FlexMask((1, 2, 500, 500), 64, "cpu", train=True)
        q, k, v = (torch.randn(1, 2, 500, 16) for _ in range(3))
        buffers = [x.data_ptr() for x in (mask.block_mask.full_kv_num_blocks, mask.block_mask.full_kv_indices)]
        for _ in range(3):
            selection = random_selection(rng, 1, 2, 500, 500, 64, 64)
            block_mask, _ = mask.update(selection)
            fresh, _ = tt.to_flex(selection, "cpu", train=True)
            for name in ("full_kv_num_blocks", "full_kv_indices", "full_q_num_blocks", "full_q_indices"):
                self.assertTrue(torch.equal(getattr(block_mask, name), getattr(fresh, name)), name)
            want, _ = reference(q.double(), k.double(), v.double(), selection)
            self.assertLess(distance(flex_attention(q, k, v, block_mask=block_mask), want), 1e-6)
        self.assertEqual(buffers, [x.data_ptr() for x in (block_mask.full_kv_num_blocks, block_mask.full_kv_indices)])
        with self.assertRaisesRegex(ValueError, "selection has the shape"):
            mask.update(random_selection(rng, 1, 2, 400, 400, 64, 64))

    def test_one_compilation_serves_all_selections_of_a_shape(self):
        rng = np.random.default_rng(11)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(flex_attention)
        mask = tt.FlexMask((1, 2, 200, 200), 64, "cpu")
        q, k, v = (torch.randn(1, 2, 200, 16) for _ in range(3))
        with torch.no_grad():
            for share in (0.5, 0.2, 0.9):
                selection = random_selection(rng, 1, 2, 200, 200, 64, 64, share)
                block_mask, options = mask.update(selection)
                want, _ = reference(q.double(), k.double(), v.double(), selection)
                self.assertLess(distance(compiled(q, k, v, block_mask=block_mask, kernel_options=options), want), 1e-6)
        self.assertEqual(torch._dynamo.utils.counters["stats"]["unique_graphs"], 1)

    def test_blocks_of_several_sizes(self):
        bounds = np.array([0, 10, 50, 64])
        selection = tessera.Selection.from_mask(np.array([[[1, 0, 1], [0, 1, 0], [1, 1, 0]]], bool), bounds, bounds, 64)
        with self.assertRaisesRegex(ValueError, "query blocks of several sizes"):
            tt.to_flex(selection, "cpu")
        q = torch.randn(1, 1, 64, 16)
        want, _ = reference(q.double(), q.double(), q.double(), selection)
        self.assertLess(distance(tt.flex_kernel(q, q, q, selection)[0], want), 1e-6)


def snake(cost, ranks):
    """The order that xDiT's head balance has: by falling cost, forth and back over the ranks."""
    order = np.argsort(-cost, kind="stable")
    groups = [[] for _ in range(ranks)]
    for place, head in enumerate(order):
        row, column = divmod(place, ranks)
        groups[column if row % 2 == 0 else ranks - 1 - column].append(head)
    return np.concatenate(groups)


def imbalance(cost, perm, ranks):
    return cost[perm].reshape(ranks, -1).sum(1).max() / (cost.sum() / ranks)


class HeadOrder(unittest.TestCase):
    def test_every_rank_gets_as_many_heads_and_never_more_than_by_the_snake(self):
        rng = np.random.default_rng(9)
        for heads, ranks in ((40, 8), (12, 4), (6, 3), (8, 8), (5, 1)):
            for _ in range(20):
                cost = rng.random(heads) ** 3
                perm = tt.compute_perm(torch.from_numpy(cost), ranks).numpy()
                self.assertEqual(sorted(perm), list(range(heads)))
                self.assertLessEqual(imbalance(cost, perm, ranks), imbalance(cost, snake(cost, ranks), ranks) * (1 + 1e-8))

    def test_published_densities_of_wan(self):
        paths = sorted(glob.glob(os.path.join(PROFILES, "*.csv")))
        if not paths:
            self.skipTest(f"{os.path.normpath(PROFILES)} has no densities")
        for path in paths:
            costs = {}
            with open(path, encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    costs.setdefault((row["step"], row["layer"]), []).append(float(row["density"]))
            for ranks in (2, 4, 8):
                ours = []
                for cost in map(np.array, costs.values()):
                    if len(cost) % ranks == 0:
                        ours.append(imbalance(cost, tt.compute_perm(torch.from_numpy(cost), ranks).numpy(), ranks))
                        self.assertLessEqual(ours[-1], imbalance(cost, snake(cost, ranks), ranks) * (1 + 1e-8))
                if "14b" in path and ranks == 8:
                    self.assertLessEqual(np.mean(ours), 1.02)

    def test_compiled_and_wrong(self):
        compiled = torch.compile(lambda c: tt.compute_perm(c * 2, 2) + 1, backend="eager", fullgraph=True)
        cost = torch.tensor([4.0, 1.0, 2.0, 3.0])
        self.assertTrue(torch.equal(compiled(cost), tt.compute_perm(cost, 2) + 1))
        self.assertEqual(sorted(tt.compute_perm(torch.zeros(4), 2).tolist()), [0, 1, 2, 3])
        with self.assertRaisesRegex(ValueError, "world_size is 3, must divide the 4 heads"):
            tt.compute_perm(cost, 3)
        with self.assertRaisesRegex(ValueError, "cost has negative or infinite numbers"):
            tt.compute_perm(-cost, 2)


class Densities(unittest.TestCase):
    def test_masks_and_selections_have_the_same_densities(self):
        mask = np.random.default_rng(10).random((3, 4, 4)) < 0.5
        recorder = tt.DensityRecorder()
        for step, source in enumerate((tessera.Selection.from_mask(mask, 16, 16, 64), mask, torch.from_numpy(mask), mask[None])):
            recorder.record(source, layer=0, step=step)
        for step in range(4):
            np.testing.assert_allclose(recorder.density(step)[0], mask.mean((1, 2)))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "density.csv")
            recorder.save(path)
            with open(path, encoding="ascii") as file:
                lines = file.read().splitlines()
            self.assertEqual(lines[0], "step,layer,head,density")
            self.assertEqual(len(lines), 1 + 4 * 3)
            self.assertEqual(os.listdir(folder), ["density.csv"])

    def test_shorter_blocks_count_by_their_tokens(self):
        selection = tessera.Selection.from_mask(np.array([[[1, 0], [0, 1]]], bool), 16, 16, 20)
        recorder = tt.DensityRecorder()
        recorder.record(selection, layer=3)
        self.assertAlmostEqual(recorder.density()[0][0], (256 + 16) / 400)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, NumPy {np.__version__}")
    unittest.main()
