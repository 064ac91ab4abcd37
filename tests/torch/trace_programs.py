# SPDX-License-Identifier: Apache-2.0
"""trace_programs.py - small training programs as builders of a step, for real processes and for the player.

Each is build(device) -> step, and works in any world whose size its name allows. device: "cpu", also under fake tensors.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

WIDTH, TOKENS, BATCH, LAYERS = 32, 8, 4, 4


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, layers=LAYERS, width=WIDTH):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 50)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data():
    return torch.arange(BATCH * TOKENS).reshape(BATCH, TOKENS) % 50


def training(model, tokens, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def plain():
    torch.manual_seed(0)
    return training(Net(), data())


def ddp():
    torch.manual_seed(0)
    from torch.nn.parallel import DistributedDataParallel
    return training(DistributedDataParallel(Net(), bucket_cap_mb=0.02), data())


class Counted(Net):
    """With a buffer, and with a block that no step uses."""

    def __init__(self, unused=False):
        super().__init__()
        self.register_buffer("steps", torch.zeros(3))
        self.spare = Block() if unused else None

    def forward(self, tokens):
        self.steps += 1
        return super().forward(tokens)


def ddp_views():
    torch.manual_seed(0)
    from torch.nn.parallel import DistributedDataParallel
    return training(DistributedDataParallel(Counted(), bucket_cap_mb=0.02, gradient_as_bucket_view=True), data())


def ddp_unused():
    torch.manual_seed(0)
    from torch.nn.parallel import DistributedDataParallel
    return training(DistributedDataParallel(Counted(unused=True), bucket_cap_mb=0.02, find_unused_parameters=True), data())


def ddp_static():
    torch.manual_seed(0)
    from torch.nn.parallel import DistributedDataParallel
    return training(DistributedDataParallel(Net(), bucket_cap_mb=0.02, static_graph=True), data())


def ddp_hook():
    torch.manual_seed(0)
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.02)
    model.register_comm_hook(None, allreduce_hook)
    return training(model, data())


def sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp():
    torch.manual_seed(0)
    return training(sharded(Net(), init_device_mesh("cpu", (dist.get_world_size(),))), data())


def hsdp():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    return training(sharded(Net(), mesh), data())


def cut(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def tensor_parallel():
    torch.manual_seed(0)
    return training(cut(Net(), init_device_mesh("cpu", (dist.get_world_size(),))), data())


def sequence_parallel():
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Net()
    parallelize_module(model, mesh, {"embed": RowwiseParallel(input_layouts=_replicate(), output_layouts=Shard(1)),
                                     "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=_replicate())})
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=True)})
    return training(model, data())


def _replicate():
    from torch.distributed.tensor import Replicate
    return Replicate()


def fsdp_tensor_parallel():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    return training(sharded(cut(Net(), mesh["tensor"]), mesh["data"]), data())


def accumulated():
    torch.manual_seed(0)
    from torch.nn.parallel import DistributedDataParallel
    model, tokens = DistributedDataParallel(Net()), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        with model.no_sync():
            model(tokens).sum().backward()
        model(tokens).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def checkpointed():
    from torch.utils.checkpoint import checkpoint
    torch.manual_seed(0)
    model = sharded(Net(), init_device_mesh("cpu", (dist.get_world_size(),)))
    tokens = data()
    optimizer = torch.optim.AdamW(model.parameters())

    for block in model.blocks:
        inner = block.forward
        block.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)

    def step():
        model(tokens).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def pipeline(schedule, stages_of_a_rank, looped=True):
    def build():
        from torch.distributed import pipelining
        from torch.distributed.pipelining import PipelineStage
        torch.manual_seed(0)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        n = ranks * stages_of_a_rank
        own = [rank + ranks * i for i in range(stages_of_a_rank)] if looped else [rank, n - 1 - rank]
        given = torch.zeros(1, TOKENS, WIDTH, requires_grad=True)
        stages = [PipelineStage(Block(), s, n, torch.device("cpu"), input_args=(given,), output_args=(given.clone(),)) for s in own]
        optimizer = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=0.1)
        kind = getattr(pipelining, schedule)
        loss = lambda out, target: (out - target).square().mean()   # noqa: E731
        runs = kind(stages if stages_of_a_rank > 1 else stages[0], n_microbatches=2 * ranks, loss_fn=loss)
        x, y = torch.ones(2 * ranks, TOKENS, WIDTH), torch.ones(2 * ranks, TOKENS, WIDTH)

        def step():
            runs.step(*([x] if 0 in own else []), **({"target": y, "losses": []} if n - 1 in own else {}))
            optimizer.step()
            optimizer.zero_grad()
        return step
    return build


def context_parallel():
    """Keys and values by functional all-gathers, a loss summed over ranks."""
    from torch.distributed import _functional_collectives as functional
    torch.manual_seed(0)
    project = nn.Linear(WIDTH, 3 * WIDTH)
    optimizer = torch.optim.SGD(project.parameters(), lr=0.1)
    x = torch.randn(1, TOKENS, WIDTH)
    group = dist.group.WORLD

    def step():
        q, k, v = project(x).chunk(3, -1)
        keys, values = (functional.all_gather_tensor_autograd(t.contiguous(), 1, group) for t in (k, v))
        o = F.scaled_dot_product_attention(*(t.unflatten(-1, (4, -1)).transpose(1, 2) for t in (q, keys, values)))
        o.square().sum().backward()
        for p in project.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
    return step


PROGRAMS = {
    "ddp": (ddp, 2), "ddp_views": (ddp_views, 2), "ddp_unused": (ddp_unused, 2), "ddp_static": (ddp_static, 2),
    "ddp_hook": (ddp_hook, 2), "fsdp": (fsdp, 2), "hsdp": (hsdp, 4), "tensor_parallel": (tensor_parallel, 2),
    "sequence_parallel": (sequence_parallel, 2), "fsdp_tensor_parallel": (fsdp_tensor_parallel, 4), "accumulated": (accumulated, 2),
    "checkpointed": (checkpointed, 2), "context_parallel": (context_parallel, 2),
    "1f1b": (pipeline("Schedule1F1B", 1), 2), "interleaved": (pipeline("ScheduleInterleaved1F1B", 2), 2),
    "interleaved_zero_bubble": (pipeline("ScheduleInterleavedZeroBubble", 2), 2),
    "zbv": (pipeline("ScheduleZBVZeroBubble", 2, looped=False), 2),
}
