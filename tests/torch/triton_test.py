#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""triton_test.py - the backend "triton" of tessera.torch under Triton's interpreter, against double precision.

    PYTHONPATH=build/release/python python tests/torch/triton_test.py

fp32 and fp16: the interpreter's products of bf16 are wrong. Skips (77) where Python has no Triton.
"""
import functools
import importlib.util
import logging
import os
import subprocess
import sys
import unittest

if importlib.util.find_spec("triton") is None:
    print(f"skipped: {sys.executable} has no triton (pip install triton)")
    sys.exit(77)
os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

import tessera
import tessera.torch as tt
from gpu_reference import CASES, best_lists, error, run, selection_of, tensors_of
from tessera.torch import _gpu_triton

logging.getLogger("tessera").addHandler(logging.NullHandler())
logging.getLogger("tessera").propagate = False


run = functools.partial(run, backend="triton")


class Attention(unittest.TestCase):
    def check(self, got, want, dtype):
        # fp16: gradients are rounded once more on the way out.
        bar_o, bar = (1e-6, 1e-6) if dtype == torch.float32 else (6e-4, 6e-4 + 2 ** -12)
        for name, a, b, most in zip(("o", "lse", "dq", "dk", "dv"), got, want, (bar_o, 2e-6, bar, bar, bar)):
            self.assertLessEqual(error(a, b), most, name)

    def test_outputs_and_gradients_are_those_of_double_precision(self):
        for i, case in enumerate(CASES):
            for dtype in (torch.float32, torch.float16):
                with self.subTest(case=case, dtype=dtype):
                    self.check(*run(case, dtype, i, deterministic=i % 2 == 0, use_lse=i % 3 != 2), dtype)
            self.check(*run(case, torch.float32, i, deterministic=i % 2 != 0), torch.float32)

    def test_scores_of_80(self):
        # A score of 80 is a sum of 64 products of that size: p is off by some of its ulps, 7.6e-6 each.
        for sign in (1.0, -1.0):
            got, want = run(CASES[0], torch.float32, 9, factor=sign * 20.0)
            self.assertGreater(float(want[1][want[1].isfinite()].max()), 60)
            for name, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, want):
                self.assertLessEqual(error(a, b), 4e-5 if name != "lse" else 1e-6, name)

    def test_every_workspace_gives_the_same_bits(self):
        got, _ = run(CASES[0], torch.float16)
        with self.assertRaisesRegex(ValueError, "workspace is 1, must be at least ([0-9]+) for these lists") as failed:
            run(CASES[0], torch.float16, workspace=1)
        least = int(str(failed.exception).split("at least ")[1].split()[0])
        small, _ = run(CASES[0], torch.float16, workspace=least)
        middle, _ = run(CASES[0], torch.float16, workspace=3 * least)
        for other in (small, middle):
            for a, b in zip(got, other):
                self.assertTrue(torch.equal(a, b))

    def test_a_nan_stays_in_its_row_and_in_the_gradients_of_its_keys(self):
        case = CASES[0]
        selection = selection_of(case)
        q, k, v, do, _ = tensors_of(case, torch.float32)
        clean = tt.sparse_attention(q, k, v, selection, backend="triton")
        q[1, 1, 40, 3] = float("nan")
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        o = tt.sparse_attention(*given, selection, backend="triton")
        o.backward(do)
        keys = torch.from_numpy(selection.to_mask(tokens=True)[1, 1, 40])
        self.assertTrue(torch.equal(given[1].grad[1, 1].isnan().any(-1), keys))
        self.assertTrue(bool(given[1].grad[0].isfinite().all() and given[1].grad[1, 0].isfinite().all()))
        rows = given[0].grad.isnan().any(-1)
        self.assertEqual((int(rows.sum()), bool(rows[1, 1, 40])), (1, True))
        o = o.detach()
        self.assertTrue(bool(o[1, 1, 40].isnan().all()))
        o[1, 1, 40] = clean[1, 1, 40]
        self.assertTrue(torch.equal(o, clean))

    def test_nothing_to_attend_to(self):
        q, k = (torch.zeros(1, 1, n, 64, requires_grad=True) for n in (0, 8))
        o = tt.sparse_attention(q, k, k, tessera.Selection.from_mask(np.zeros((1, 0, 8), bool), 32, 1, 0, 8),
                                backend="triton")
        o.sum().backward()
        self.assertEqual((o.shape, float(k.grad.abs().sum())), (q.shape, 0.0))
        q = torch.ones(1, 1, 4, 64, requires_grad=True)
        o, lse = tt.sparse_attention(q, k, k, tessera.Selection.from_mask(np.zeros((1, 1, 1), bool), 4, 8, 4, 8),
                                     return_lse=True, backend="triton")
        o.sum().backward()
        self.assertEqual((float(o.abs().sum()), bool((lse == -float("inf")).all()), float(q.grad.abs().sum())),
                         (0.0, True, 0.0))


class Operators(unittest.TestCase):
    case = (1, 2, 40, 50, 64, 16, 1, 0.4)

    def test_opcheck_and_gradcheck(self):
        number = tt.handle(selection_of(self.case))
        q, k, v, *_ = (x.detach().requires_grad_() for x in tensors_of(self.case, torch.float32))
        torch.library.opcheck(torch.ops.tessera.attend_gpu.default, (q, k, v, number, 0.125, True, 0, "triton"))
        for deterministic in (True, False):
            def attend(*x, d=deterministic):
                return torch.ops.tessera.attend_gpu(*x, number, 0.3, d, 0, "triton")[0]
            self.assertTrue(torch.autograd.gradcheck(attend, (q, k, v), eps=1e-2, atol=2e-3, rtol=1e-2,
                                                     fast_mode=True))

    def test_compiled_without_a_break(self):
        q, k, v, do, _ = tensors_of(self.case, torch.float32)
        low_q, low_k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8)

        def step(q, k, v, low_q, low_k):
            n = tt.select(low_q, low_k, 9, 16, seq_q=40, backend="triton")
            return tt.sparse_attention(q * 2, k, v, n, backend="triton") + 1
        both = []
        for call in (torch.compile(step, backend="aot_eager", fullgraph=True), step):
            given = [x.detach().clone().requires_grad_() for x in (q, k, v)]
            o = call(*given, low_q, low_k)
            o.backward(do)
            both.append([o.detach(), *(x.grad for x in given)])
        for a, b in zip(*both):
            self.assertTrue(torch.equal(a, b))


class Selecting(unittest.TestCase):
    def lists(self, q, k, keep, q_block=16):
        made = tt._handle.find_selection(tt.select(q, k, keep, q_block, backend="triton"))
        return [made.indices[a:b].numpy() for a, b in zip(made.offsets[:-1], made.offsets[1:])]

    def check(self, q, k, keep):
        for got, want in zip(self.lists(q, k, keep), best_lists(q, k, np.broadcast_to(keep, q.shape[:2]).ravel()),
                             strict=True):
            np.testing.assert_array_equal(got, want)

    def test_lists_are_those_of_double_precision(self):
        torch.manual_seed(1)
        for rank, groups, seq_k, keep in ((8, 3, 60, 20), (16, 20, 200, [[1, 200]]), (33, 3, 100, [[99, 0]]),
                                          (64, 2, 70, 35), (7, 17, 50, 25)):
            self.check(torch.randn(1, 2, groups, rank), torch.randn(1, 2, seq_k, rank), keep)

    def test_ties_nan_and_zeros_of_both_signs(self):
        # Integers: NumPy's products of equal rows, which the interpreter takes, differ in bits with the place.
        torch.manual_seed(2)
        q, k = (torch.randint(-99, 100, (1, 2, n, 8)).float() for n in (5, 300))
        k[0, 0, 10:200] = k[0, 0, 9]
        k[0, 0, 250:280] = 0.0
        k[0, 0, 255:260] = -0.0
        k[0, 1, 3, 2] = float("nan")
        k[0, 1, 5, 1] = float("inf")
        for keep in (30, 150, 299, 300):
            self.check(q, k, keep)
        self.check(torch.zeros(1, 1, 1, 8), k[:1, :1], 40)

    def test_attention_over_selected_lists_of_units(self):
        q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
        number = tt.select(q, k, 3, 16, 16, seq_q=40, seq_k=100, backend="triton")
        lists = best_lists(q, k, [3, 3])
        selection = tessera.Selection.from_lists(np.arange(7) * 3, np.concatenate(lists).astype(np.int32), batch=1,
                                                 heads=2, seq_q=40, seq_k=100, q_block=16, k_block=16)
        x, y = torch.randn(1, 2, 40, 64), torch.randn(1, 2, 100, 64)
        grads = []
        for s in (number, selection):
            given = [x.clone().requires_grad_(), y.clone().requires_grad_()]
            tt.sparse_attention(given[0], given[1], given[1], s, backend="triton").square().sum().backward()
            grads.append([g.grad for g in given])
        for a, b in zip(*grads):
            self.assertTrue(torch.equal(a, b))


class Sentences(unittest.TestCase):
    def test_what_is_not_served_is_named(self):
        case = Operators.case
        selection = selection_of(case)
        q, k, v, *_ = tensors_of(case, torch.float32)
        with self.assertRaisesRegex(NotImplementedError,
                                    "q is of torch.bfloat16, must be of float16 or float32 under Triton's interpreter"):
            tt.sparse_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), selection, backend="triton")
        with self.assertRaisesRegex(NotImplementedError, "backend triton \\(Triton\\): PyTorch finds no GPU"):
            tt._gpu_operator.choose(torch.device("cuda", 0), torch.bfloat16, "triton")
        with self.assertRaisesRegex(NotImplementedError,
                                    "backend c \\(libtessera_gpu\\): .*; "
                                    "backend triton \\(Triton\\): PyTorch finds no GPU"):
            tt.backend("cuda")
        self.assertEqual(tt.backend("cpu", torch.float16).backend, "triton")
        self.assertIn("not by libtessera_gpu: tess_gpu_open: ", tt.backend("cpu", torch.float16).reason)

    def test_without_the_interpreter_or_without_triton(self):
        for change, sentence in (("os.environ['TRITON_INTERPRET'] = '0'",
                                  "q is on cpu, its kernels run on GPUs, and on a CPU under its interpreter"),
                                 ("sys.modules['triton'] = None",
                                  "backend triton (Triton): Triton cannot be imported: ")):
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", f"""
import os, sys
{change}
import torch, tessera, tessera.torch as tt, numpy as np
q = torch.ones(1, 1, 16, 64)
tt.sparse_attention(q, q, q, tessera.Selection.from_mask(np.ones((1, 1, 1), bool), 16, 16, 16), backend="triton")
"""], capture_output=True, text=True, timeout=300, check=False)
            self.assertIn("tessera.UnsupportedError", done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    assert _gpu_triton.interpreted()
    print(f"torch {torch.__version__}, triton {_gpu_triton.triton.__version__}, interpreted")
    unittest.main()
