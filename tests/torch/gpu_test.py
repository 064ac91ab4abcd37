#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_test.py - the backend "c" of tessera.torch over the driver of tests, which runs the kernels in an emulation.

    PYTHONPATH=FOLDER python tests/torch/gpu_test.py --driver libcuda.so.1

FOLDER has the package with libtessera_gpu over the image of tests; tensors are of the CPU, whose memory the driver of
tests takes for that of its device.
"""
import ctypes
import functools
import logging
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch

import tessera
import tessera.torch as tt
from gpu_reference import CASES, best_lists, error, run, selection_of, tensors_of
from tessera import _gpu

logging.getLogger("tessera").addHandler(logging.NullHandler())
logging.getLogger("tessera").propagate = False


class Setup(ctypes.Structure):
    """fake_driver_setup of tests/gpu/fake_driver.h."""
    _fields_ = [(n, ctypes.c_int) for n in ("version", "devices", "major", "minor", "shared_bytes", "unified",
                                            "load_result", "launch_result")] + \
        [("seed", ctypes.c_uint), ("launches", ctypes.c_long)]


DRIVER = sys.argv[sys.argv.index("--driver") + 1]
fake = Setup.in_dll(ctypes.CDLL(DRIVER), "fake_driver")  # found by its soname from now on
fake.unified = 1


run = functools.partial(run, backend="c")


class Attention(unittest.TestCase):
    def check(self, got, want, dtype):
        # Those of docs/gpu.md; gradients are rounded to the type of q, half an ulp of 8 or 11 bits more.
        bar_o, bar = (4e-3, 5e-3 + 2 ** -9) if dtype == torch.bfloat16 else (6e-4, 6e-4 + 2 ** -12)
        for name, a, b, most in zip(("o", "lse", "dq", "dk", "dv"), got, want, (bar_o, 2e-6, bar, bar, bar)):
            self.assertLessEqual(error(a, b), most, name)

    def test_outputs_and_gradients_are_those_of_double_precision(self):
        for i, case in enumerate(CASES):
            for dtype in (torch.bfloat16, torch.float16):
                for deterministic in (True, False):
                    with self.subTest(case=case, dtype=dtype, deterministic=deterministic):
                        self.check(*run(case, dtype, i, deterministic=deterministic, use_lse=i % 2 == 0), dtype)

    def test_scores_of_80(self):
        for sign in (1.0, -1.0):
            got, want = run(CASES[0], torch.bfloat16, 9, factor=sign * 20.0)
            self.assertGreater(float(want[1][want[1].isfinite()].max()), 60)
            self.check(got[:2], want[:2], torch.bfloat16)

    def test_every_workspace_gives_the_same_bits(self):
        got, _ = run(CASES[0], torch.bfloat16)
        with self.assertRaisesRegex(ValueError, "budget is 1, must be at least ([0-9]+) for these lists") as failed:
            run(CASES[0], torch.bfloat16, workspace=1)
        least = int(str(failed.exception).split("at least ")[1].split()[0])
        before = fake.launches
        small, _ = run(CASES[0], torch.bfloat16, workspace=least)
        self.assertGreater(fake.launches - before, 10)
        fake.seed += 3
        for other in (small, run(CASES[0], torch.bfloat16)[0]):
            for a, b in zip(got, other):
                self.assertTrue(torch.equal(a, b))

    def test_tensors_that_kernels_do_not_take_are_copied(self):
        case = CASES[0]
        selection = selection_of(case)
        q, k, v, *_ = tensors_of(case, torch.bfloat16)
        want = tt.sparse_attention(q, k, v, selection, backend="c")
        odd = torch.empty(2, 2, 70, 65, dtype=torch.bfloat16)[..., 1:].copy_(q)  # rows at odd addresses
        turned = q.transpose(2, 3).contiguous().transpose(2, 3)
        for x in (odd, turned):
            self.assertTrue(torch.equal(tt.sparse_attention(x, k, v, selection, backend="c"), want))

    def test_a_nan_stays_in_its_row(self):
        case = CASES[0]
        selection = selection_of(case)
        q, k, v, *_ = tensors_of(case, torch.bfloat16)
        clean = tt.sparse_attention(q, k, v, selection, backend="c")
        q[1, 1, 40, 3] = float("nan")
        o = tt.sparse_attention(q, k, v, selection, backend="c")
        self.assertTrue(bool(o[1, 1, 40].isnan().all()))
        o[1, 1, 40] = clean[1, 1, 40]
        self.assertTrue(torch.equal(o, clean))

    def test_nothing_to_attend_to(self):
        q = torch.zeros(1, 1, 0, 64, dtype=torch.bfloat16, requires_grad=True)
        k = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16, requires_grad=True)
        o = tt.sparse_attention(q, k, k, tessera.Selection.from_mask(np.zeros((1, 0, 8), bool), 32, 1, 0, 8),
                                backend="c")
        o.float().sum().backward()
        self.assertEqual((o.shape, float(k.grad.float().abs().sum())), (q.shape, 0.0))


class Operators(unittest.TestCase):
    def setUp(self):
        self.case = (1, 2, 40, 50, 64, 16, 1, 0.4)
        self.selection = selection_of(self.case)

    def test_opcheck(self):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v, *_ = (x.detach().requires_grad_() for x in tensors_of(self.case, dtype))
            torch.library.opcheck(torch.ops.tessera.attend_gpu.default,
                                  (q, k, v, tt.handle(self.selection), 0.125, True, 0, "c"),
                                  atol=2e-2, rtol=2e-2)
        q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8)
        # test_aot_dispatch_dynamic compares handles, which are numbers of their own for each call.
        torch.library.opcheck(torch.ops.tessera.select_gpu.default, (q, k, [5], [16], 1, 40, 50, "c"),
                              test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))

    def test_gradcheck(self):
        # Halves round values to 2^-11: differences over 2^-3 have an error of 2^-8 of the largest, so sums of four rows
        # are compared.
        selection = tessera.Selection.from_mask(np.ones((1, 1, 1), bool), 16, 16, 16)
        torch.manual_seed(3)
        q, k, v, do = (torch.randn(1, 1, 16, 64).half() for _ in range(4))
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        tt.sparse_attention(*given, selection, backend="c").backward(do)
        for i in range(3):
            step = torch.zeros(1, 1, 16, 64)
            step[0, 0, :4] = torch.randn(4, 64).sign() * 2 ** -3

            def loss(sign, at=i, by=step):
                moved = [x.float() + sign * by if j == at else x.float() for j, x in enumerate((q, k, v))]
                o = tt.sparse_attention(*(x.half() for x in moved), selection, backend="c")
                return float((o.double() * do.double()).sum())
            numeric = (loss(1) - loss(-1)) / 2
            self.assertAlmostEqual(float((given[i].grad.double() * step).sum()), numeric,
                                   delta=0.03 * max(1.0, abs(numeric)))

    def test_compiled_without_a_break_and_without_compiling_again(self):
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            return graph.forward

        q, k, v, do, _ = tensors_of(self.case, torch.bfloat16)
        compiled = torch.compile(lambda q, k, v, n: tt.sparse_attention(q * 2, k, v, n, backend="c") + 1, backend=count,
                                 fullgraph=True)
        for seed in range(3):
            selection = selection_of(self.case, seed)
            self.assertTrue(torch.equal(compiled(q, k, v, tt.handle(selection)),
                                        tt.sparse_attention(q * 2, k, v, selection, backend="c") + 1))
        self.assertEqual(len(graphs), 1)
        trained = torch.compile(lambda q, k, v, n: tt.sparse_attention(q, k, v, n, backend="c"), backend="aot_eager",
                                fullgraph=True)
        both = []
        for call, n in ((trained, tt.handle(selection)), (lambda *x: tt.sparse_attention(*x, backend="c"), selection)):
            given = [x.detach().clone().requires_grad_() for x in (q, k, v)]
            call(*given, n).backward(do)
            both.append([x.grad for x in given])
        for a, b in zip(*both):
            self.assertTrue(torch.equal(a, b))

    def test_compiled_selection_and_attention_in_one_graph(self):
        q, k, v, *_ = tensors_of(self.case, torch.bfloat16)
        low_q, low_k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8)

        def attend(q, k, v, low_q, low_k):
            n = tt.select(low_q, low_k, 9, 16, seq_q=40, backend="c")
            return tt.sparse_attention(q, k, v, n, backend="c")
        compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
        self.assertTrue(torch.equal(compiled(q, k, v, low_q, low_k), attend(q, k, v, low_q, low_k)))

    def test_fake_tensors_of_a_gpu_trace_to_one_graph(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        number = tt.handle(self.selection)
        with FakeTensorMode(allow_non_fake_inputs=True):
            q, k, do = (torch.empty(1, n, 2, 64, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
                        for n in (40, 50, 40))
            o, lse = tt.sparse_attention(q, k, k, number, return_lse=True)
            dq, dk, dv = torch.ops.tessera.attend_gpu_backward(do, lse, q, k, k, o, lse, number, 0.125, True, 0, None)
            for x, like in ((o, q), (dq, q), (dk, k), (dv, k)):
                self.assertEqual((x.shape, x.stride(), x.dtype, x.device),
                                 (like.shape, like.stride(), like.dtype, like.device))
            self.assertEqual((lse.shape, lse.dtype, lse.device), (q.shape[:3], torch.float32, q.device))
            low = [torch.empty(1, 2, n, 8, device="cuda") for n in (3, 50)]
            made = tt.select(*low, 5, 16, seq_q=40)
            self.assertEqual((made.shape, made.dtype, made.device.type), ((1,), torch.int64, "cpu"))

            def attend(q, k, low_q, low_k):
                return tt.sparse_attention(q * 2, k, k, tt.select(low_q, low_k, 5, 16, seq_q=40)) + 1
            graphs = []

            def keep(graph, inputs):
                graphs.append(graph)
                return graph.forward
            torch.compile(attend, backend=keep, fullgraph=True)(q, k, *low)
        names = [str(node.target) for graph in graphs for node in graph.graph.nodes if "tessera" in str(node.target)]
        self.assertEqual((len(graphs), names), (1, ["tessera.select_gpu.default", "tessera.attend_gpu.default"]))

    def test_a_training_step_traces_to_one_graph(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        def step(q, k, n):
            o, lse = tt.sparse_attention(q, k, k, n, return_lse=True, backend="c")
            return o, lse, *torch.autograd.grad(o.float().sum() + lse.sum(), (q, k))
        q, k = (torch.empty(1, 2, n, 64, dtype=torch.bfloat16).requires_grad_() for n in (40, 50))
        graph = make_fx(step, tracing_mode="fake")(q, k, tt.handle(self.selection))
        names = [str(node.target) for node in graph.graph.nodes if "tessera" in str(node.target)]
        self.assertEqual(names, ["tessera.attend_gpu.default", "tessera.attend_gpu_backward.default"])


class Guide(unittest.TestCase):
    def test_the_example_runs_on_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "gpu.md"),
                  encoding="utf-8") as file:
            example, = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        # Without a device, autograd's engine runs backward of no tensor of a GPU.
        forward, = re.findall(r"(.*)o\.float\(\)\.square\(\)\.mean\(\)\.backward\(\) [^\n]*\n$", example, re.DOTALL)
        names = {"torch": torch}
        with FakeTensorMode():
            exec(compile(forward, "gpu.md", "exec"), names)
        self.assertEqual((names["o"].shape, names["o"].dtype, names["o"].requires_grad),
                         (names["q"].shape, torch.bfloat16, True))


class Selecting(unittest.TestCase):
    def check(self, q, k, keep, q_block=16):
        """Attention over the lists is that over the lists of double precision."""
        batch, heads, n_q, _ = q.shape
        seq_k = k.shape[2]
        keep = np.broadcast_to(keep, (batch, heads)).ravel()
        lists = best_lists(q, k, keep)
        offsets = np.concatenate(([0], np.cumsum([len(i) for i in lists])))
        want = tessera.Selection.from_lists(offsets, np.concatenate(lists).astype(np.int32), batch=batch, heads=heads,
                                            seq_q=n_q * q_block, seq_k=seq_k, q_block=q_block, k_block=1)
        x, y, v = (torch.randn(batch, heads, n, 64).bfloat16() for n in (n_q * q_block, seq_k, seq_k))
        made = tt.select(q, k, keep.reshape(batch, heads), q_block, backend="c")
        for a, b in zip(*(tt.sparse_attention(x, y, v, s, return_lse=True, backend="c") for s in (made, want))):
            self.assertTrue(torch.equal(a, b))

    def test_lists_are_those_of_double_precision(self):
        torch.manual_seed(1)
        for rank, seq_k, keep in ((8, 60, 20), (16, 200, [[1, 200]]), (33, 100, [[99, 0]]), (64, 70, 35), (7, 50, 25)):
            self.check(torch.randn(1, 2, 3, rank), torch.randn(1, 2, seq_k, rank), keep)

    def test_ties_and_nan(self):
        q, k = torch.randn(1, 2, 2, 8), torch.randn(1, 2, 90, 8)
        k[0, 0, 10:70] = k[0, 0, 9]
        k[0, 1, 3, 2] = float("nan")
        k[0, 1, 5, 1] = float("inf")
        for keep in (30, 89):
            self.check(q, k, keep)

    def test_gradients_flow_through_attention_over_selected_lists(self):
        n = tt.select(torch.randn(1, 1, 2, 8), torch.randn(1, 1, 40, 8), 10, 16, backend="c")
        q, k = (torch.randn(1, 1, s, 64).half().requires_grad_() for s in (32, 40))
        tt.sparse_attention(q, k, k, n, backend="c").float().sum().backward()
        self.assertTrue(bool(k.grad.isfinite().all()) and float(k.grad.abs().sum()) > 0)


class Sentences(unittest.TestCase):
    def fails(self, sentence, call, kind=(ValueError, NotImplementedError, TypeError)):
        with self.assertRaisesRegex(kind, sentence):
            call()

    def test_wrong_arguments_are_named(self):
        case = (1, 2, 40, 50, 64, 16, 1, 0.4)
        selection = selection_of(case)
        q, k, v, *_ = tensors_of(case, torch.bfloat16)

        def attend(q=q, k=k, v=v, selection=selection, backend="c", **more):
            return tt.sparse_attention(q, k, v, selection, backend=backend, **more)
        before = fake.launches
        wide = torch.randn(1, 2, 40, 96).bfloat16()
        self.fails("q has a head_dim of 96, must be 64 or 128 on GPUs", lambda: attend(wide, wide, wide))
        self.fails("q is of torch.float32, must be of bfloat16 or float16",
                   lambda: attend(q.float(), k.float(), v.float()))
        self.fails("v is of torch.float16, must be of torch.bfloat16 as q is", lambda: attend(v=v.half()))
        self.fails("k has the shape \\(1, 2, 50, 32\\), must be", lambda: attend(k=k[..., :32]))
        self.fails("k is on meta, must be on cpu as q is", lambda: attend(k=k.to("meta")))
        self.fails("selection is of 1 x 2 heads with 40 queries and 50 keys, must be of 1 x 2 with 40 and 49",
                   lambda: attend(k=k[:, :, :49], v=v[:, :, :49]))
        self.fails("selection is None: dense attention on GPUs is torch.nn.functional", lambda: attend(selection=None))
        self.fails("selection is a list, must be", lambda: attend(selection=[1]))
        self.fails("compensate is 2, must be 0 on GPUs", lambda: attend(compensate=2))
        self.fails("workspace is -1, must be 0", lambda: attend(workspace=-1))
        self.fails("backend is 'cuda', must be", lambda: attend(backend="cuda"))
        self.fails("scale is 0, must be positive", lambda: attend(scale=0))
        made = tt.select(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8), 5, 16, seq_q=40, backend="c")
        launches = fake.launches
        self.fails("handle is of lists on cpu, must be of a tessera.Selection",
                   lambda: attend(q.float(), k.float(), v.float(), made, backend=None))
        low_q, low_k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8)
        self.fails("keep\\[0\\] is 51, must be 0..50", lambda: tt.select(low_q, low_k, 51, 16, seq_q=40, backend="c"))
        self.fails("keep has 3 numbers, must have 1 or 2",
                   lambda: tt.select(low_q, low_k, [1, 2, 3], 16, seq_q=40, backend="c"))
        self.fails("k_block is 3, must be a power of two",
                   lambda: tt.select(low_q, low_k, 5, 16, 3, seq_q=40, backend="c"))
        long_q, long_k = torch.randn(1, 2, 3, 65), torch.randn(1, 2, 50, 65)
        self.fails("rank is 65, must be 1..64", lambda: tt.select(long_q, long_k, 5, 16, seq_q=40, backend="c"))
        self.fails("q has the shape \\(1, 2, 3, 8\\), must be \\(1, 2, 4, 8\\)",
                   lambda: tt.select(low_q, low_k, 5, 16, seq_q=64, backend="c"))
        self.fails("q is of torch.float16", lambda: tt.select(low_q.half(), low_k, 5, 16, seq_q=40, backend="c"))
        self.fails("q is on cpu, must be on a GPU; tessera.predictor", lambda: tt.select(low_q, low_k, 5, 16, seq_q=40))
        self.assertEqual(fake.launches, launches)
        self.assertEqual(launches - before, 1)

    def test_a_failure_of_the_device_is_named(self):
        case = (1, 2, 40, 50, 64, 16, 1, 0.4)
        q, k, v, *_ = tensors_of(case, torch.bfloat16)
        fake.launch_result = 719
        try:
            self.fails("cuLaunchKernel of the driver: CUDA_ERROR_LAUNCH_FAILED",
                       lambda: tt.sparse_attention(q, k, v, selection_of(case), backend="c"))
        finally:
            fake.launch_result = 0

    def test_the_log_says_what_runs_and_why(self):
        done = self.run_python("")
        lines = [line for line in done.stderr.splitlines() if line.startswith("tessera: ")]
        self.assertEqual(lines, ["tessera: attention of bfloat16 on cpu runs by libtessera_gpu (emulation 0, "
                                 "compute capability 8.0, code for none, a test's; "
                                 "it was asked for): not checked on this device"])

    def test_what_the_check_has_found_is_known(self):
        # The file of `tessera gpu check` for this device, driver and library, written by the command's own call.
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "tessera"))
            check = f"""
import os
os.environ["XDG_CACHE_HOME"] = {folder!r}
from tessera import _gpu, _lib
d = _gpu.device(0)
given = _lib.ffi.new("tess_gpu_check_opts *", {{"tokens": 64, "repeats": 2}})
kept = _lib.ffi.new("char[]", {folder!r}.encode() + b"/tessera")
given.folder = kept
_lib.check(d.lib.tess_gpu_check(d.p, given, _lib.ffi.new("tess_gpu_check_result *")))
_gpu._devices.clear()
"""
            self.assertNotIn("checked", self.run_python(check).stderr)
            name, = os.listdir(os.path.join(folder, "tessera"))
            with open(os.path.join(folder, "tessera", name), "w", encoding="ascii") as file:
                file.write("{}")
            done = self.run_python(f"import os; os.environ['XDG_CACHE_HOME'] = {folder!r}")
            self.assertRegex(done.stderr, ": not checked on this device: .*gpu-check-")

    def test_why_the_library_does_not_serve(self):
        for change, sentence in (("fake.major = 7",
                                  "tess_gpu_open: emulation 0 has compute capability 7.0, must be 8.0 or later"),
                                 ("fake.devices = 0", "tess_gpu_open: device is 0, the driver has 0"),
                                 ("fake.version = 10020",
                                  "tess_gpu_open: the driver is of CUDA 10.2, must be 11.0 or later"),
                                 ("fake.load_result = 209",
                                  "tess_gpu_open: the image has no code for compute capability 8.0")):
            done = self.run_python(change)
            self.assertIn("tessera.UnsupportedError: backend c (libtessera_gpu): " + sentence, done.stderr)
        done = self.run_python("b = None; q = torch.empty(1, 1, 16, 64, dtype=torch.bfloat16, device='meta')")
        self.assertIn("q is on meta, must be on the CPU or on a GPU", done.stderr)

    def run_python(self, change):
        return subprocess.run([sys.executable, "-W", "ignore", "-c", f"""
import sys
sys.argv = ["", "--driver", {DRIVER!r}]
from gpu_test import Setup, ctypes, fake, np, tessera, torch, tt
q, b = torch.ones(1, 1, 16, 64).bfloat16(), "c"
tessera.torch._gpu_operator.log.addHandler(__import__('logging').StreamHandler())
{change}
for i in range(2):
    tt.sparse_attention(q, q, q, tessera.Selection.from_mask(np.ones((1, 1, 1), bool), 16, 16, 16), backend=b)
"""], capture_output=True, text=True, timeout=300, check=False, cwd=sys.path[0],
            env={**os.environ, "HOME": ""})


class Memory(unittest.TestCase):
    def test_lists_are_freed_with_their_selections(self):
        import gc
        count = ctypes.CDLL(DRIVER).fake_allocations
        count.restype = ctypes.c_long
        gc.collect()
        before = count()
        case = (1, 2, 40, 50, 64, 16, 1, 0.4)
        q, k, v, *_ = tensors_of(case, torch.bfloat16)
        for seed in range(3):
            tt.sparse_attention(q, k, v, selection_of(case, seed), backend="c")
            tt.select(torch.randn(1, 2, 3, 8), torch.randn(1, 2, 50, 8), 5, 16, seq_q=40, backend="c")
        gc.collect()
        self.assertEqual(count(), before)

    def test_threads_share_a_device(self):
        import threading
        case = CASES[0]
        q, k, v, *_ = tensors_of(case, torch.bfloat16)
        selection = selection_of(case)
        want = tt.sparse_attention(q, k, v, selection, backend="c")
        got = []
        threads = [threading.Thread(target=lambda: got.append(tt.sparse_attention(q, k, v, selection, backend="c")))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(len(got) == 4 and all(torch.equal(x, want) for x in got))


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {_gpu.device(0).name}, {_gpu.device(0).image}")
    at = sys.argv.index("--driver")
    unittest.main(argv=sys.argv[:at] + sys.argv[at + 2:])
