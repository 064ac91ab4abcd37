#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_kernels_test.py - CUDA's operators on a CPU, scripts that ask for a GPU, regions of torch.compile, and what recording costs.

    PYTHONPATH=build/release/python python tests/torch/trace_kernels_test.py
"""
import json
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

import tessera.torch
from tessera.torch.trace._kernels import _RMSNorm
from tessera.torch.trace._operators import operator_of
from tessera.torch.trace._player import Player
from tessera.torch.trace._script import trace_script
from trace_programs import Net, data, training

ON_GPU = """
import os, torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
assert torch.cuda.is_available()
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
dist.init_process_group("nccl", device_id=device)
model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Dropout(0.1), nn.Linear(128, 64, device="cuda")).to(device)
model = DistributedDataParallel(model, device_ids=[local])
sharded = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64)).cuda().to(torch.bfloat16)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
for part in (*sharded, sharded):
    fully_shard(part, mesh=mesh)
optimizer, other = (torch.optim.AdamW(m.parameters()) for m in (model, sharded))
scaler = torch.amp.GradScaler("cuda")
for x in DataLoader(torch.ones(100, 64), batch_size=2, num_workers=2, pin_memory=True):
    with torch.cuda.stream(torch.cuda.Stream()), torch.autocast("cuda", dtype=torch.bfloat16):
        y = model(x.to(device, non_blocking=True))
    scaler.scale(sharded(y.bfloat16()).float().sum()).backward()
    other.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    for one in (optimizer, other):
        one.zero_grad()
    torch.cuda.synchronize()
"""


def events_of(path, category="compute"):
    with open(path, encoding="utf-8") as file:
        return [e for e in json.load(file)["traceEvents"] if e["cat"] == category]


def same_values():
    """Norms that are recorded as one kernel compute what PyTorch's do, in both passes."""
    torch.manual_seed(0)
    for dtype, close in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        x, weight, grad = (torch.randn(*shape).to(dtype) for shape in ((3, 5, 16), (16,), (3, 5, 16)))
        got = []
        for norm in (lambda *a: F.rms_norm(a[0], (16,), a[1], 1e-6), lambda *a: _RMSNorm.apply(*a, (-1,), 1e-6, _Direct)):
            given = [t.clone().requires_grad_() for t in (x, weight)]
            out = norm(*given)
            out.backward(grad)
            got.append((out, given[0].grad, given[1].grad))
        for a, b in zip(*got):
            assert a.dtype == b.dtype and torch.allclose(a, b, rtol=close, atol=close), (dtype, (a - b).abs().max())


class _Direct:
    @staticmethod
    def kernel(name, given, compute):
        return compute()


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.drop = nn.RMSNorm(32), nn.Linear(32, 32), nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.linear(self.norm(x)))


def kernels(folder):
    def build():
        model = Normed()
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.ones(4, 32)

        def step():
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    names = {}
    for device, kind in (("cpu", None), ("cpu", "cuda"), ("meta", None), ("meta", "cpu")):
        tessera.torch.trace(build, 0, 1, f"{folder}/k.json", device=device, kernels=kind)
        names[device, kind] = [e["name"] for e in events_of(f"{folder}/k.json")]
    assert names["cpu", None] == names["meta", "cpu"] and names["cpu", "cuda"] == names["meta", None]
    of_cuda = names["meta", None]
    assert "native_dropout" in of_cuda and "_foreach_addcdiv_" in of_cuda and "addcdiv_" not in of_cuda, of_cuda
    if hasattr(torch.ops.aten, "_fused_rms_norm_backward"):
        assert of_cuda.count("_fused_rms_norm") == of_cuda.count("_fused_rms_norm_backward") == 1 and "rsqrt" not in of_cuda, of_cuda
    assert "bernoulli_" in names["cpu", None] and "_foreach_addcdiv_" not in names["cpu", None]


def traffic():
    """Bytes of operators whose tensors are not all read and written once."""
    x, small = torch.empty(64, 64), torch.empty(8, dtype=torch.long)

    def bytes_of(func, given, made, written=()):
        return operator_of(func).traffic(given, made, written)
    aten, row = torch.ops.aten, 64 * 4
    assert bytes_of(aten.mm.default, [x, x], [x]) == 3 * 64 * row
    assert bytes_of(aten.copy_.default, [x, x], [x], [x]) == 2 * 64 * row
    assert bytes_of(aten.zero_.default, [x], [x], [x]) == 64 * row
    assert bytes_of(aten.add_.Tensor, [x, x], [x], [x]) == 3 * 64 * row
    assert bytes_of(aten.mul.out, [x, x], [x], [x]) == 2 * 64 * row
    assert bytes_of(aten.embedding.default, [x, small], [x[:8]]) == 2 * 8 * row + 64
    assert bytes_of(aten.nll_loss_forward.default, [x, small], [x[0, 0]]) == 2 * 64
    assert bytes_of(aten.add.Tensor, [x, torch.empty(1, 64).expand(64, 64)], [x]) == 2 * 64 * row + row


def on_gpu(folder):
    """A script that asks for a GPU everywhere, on fake tensors."""
    if torch.cuda.is_available():
        return
    path = f"{folder}/on_gpu.py"
    with open(path, "w", encoding="utf-8") as file:
        file.write(ON_GPU)
    before = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
    summary = trace_script(path, [], 1, 4, f"{folder}/g.json", device="meta")
    assert {name: getattr(torch.cuda, name) for name in dir(torch.cuda)} == before
    assert summary.collectives["all_reduce"][0] == 1 and summary.collectives["reduce_scatter"][0] == 2, summary.collectives
    events = events_of(f"{folder}/g.json")
    products = [e["args"]["dtype"] for e in events if e["name"] in ("mm", "addmm")]
    assert len(products) >= 8 and set(products) == {"bfloat16"}, products
    names = {e["name"] for e in events}
    assert {"native_dropout", "_foreach_addcdiv_", "_amp_foreach_non_finite_check_and_unscale_"} <= names, sorted(names)


@torch.compile
def region(x):
    return F.gelu(x) * 2


def compiled(folder):
    """Compiled regions run uncompiled, all collectives are there, and each region is named once."""
    def build():
        model = Net()
        model.blocks[0] = torch.compile(model.blocks[0])
        model.head.compile()
        step = training(model, data())

        def both():
            step()
            x = region(torch.ones(3))
            dist.all_reduce(x)
        return both
    records = []
    for device in ("cpu", "meta"):
        summary = tessera.torch.trace(build, 0, 2, f"{folder}/c.json", device=device, kernels="cpu")
        records.append([e["name"] for e in events_of(f"{folder}/c.json")])
        assert summary.collectives == {"all_reduce": (1, 12)}
        for name in ("region Block of", "region Linear of", "region region of"):
            assert len([w for w in summary.warnings if name in w and ".py:" in w]) == 1, summary.warnings
        assert len(summary.warnings) == 3
    assert records[0] == records[1]


def cost():
    """CPU time of a recorded step over that of the step itself, a model of 2 million parameters and 128 words."""
    def build():
        torch.manual_seed(0)
        return training(Net(4, 256), torch.arange(128).reshape(4, 32) % 50)
    bare, recorded = [], []
    alone = build()
    alone()
    with Player(0, 1) as player:
        step = build()
        step()
        for _ in range(15):
            with _disable_current_modes():
                begin = time.process_time()
                alone()
                bare.append(time.process_time() - begin)
            player.begin()
            begin = time.process_time()
            step()
            recorded.append(time.process_time() - begin)
            player.end()
    ratio = statistics.median(recorded) / statistics.median(bare)
    print(f"recording: {1e3 * statistics.median(recorded):.1f} ms, the step alone {1e3 * statistics.median(bare):.1f} ms, {ratio:.2f} x")
    assert ratio <= 2


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        traffic()
        same_values()
        kernels(folder)
        on_gpu(folder)
        compiled(folder)
        cost()
    print("all passed")


if __name__ == "__main__":
    sys.exit(main())
