# SPDX-License-Identifier: Apache-2.0
"""trace_decoder.py - a decoder of Llama's form under FSDP2 or DDP, for recordings of large models.

    PYTHONPATH=build/release/python python tests/torch/trace_decoder.py 70b --rank 77 --world-size 512 --out rank77.json

prints the CPU time and the peak memory of the recording process. 8b: Llama-3 8B; 70b: Llama-3 70B; tiny: for tests.
"""
import argparse
import resource
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

# layers, width, heads, heads of keys, MLP, words
SIZES = {"tiny": (4, 64, 4, 2, 128, 256), "8b": (32, 4096, 32, 8, 14336, 128256), "70b": (80, 8192, 64, 8, 28672, 128256)}


class Layer(nn.Module):
    def __init__(self, width, heads, kv, inner):
        super().__init__()
        self.heads, self.kv, self.dim = heads, kv, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv * self.dim, bias=False) for _ in range(2))
        self.gate, self.up, self.down = (nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False),
                                         nn.Linear(inner, width, bias=False))

    def forward(self, x, angles):
        h = self.norm1(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.dim)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (rotate(t, angles) for t in (q, k))
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, angles):
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = angles
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Decoder(nn.Module):
    def __init__(self, layers, width, heads, kv, inner, words):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv, inner) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.dim = width // heads

    def forward(self, tokens):
        place = torch.arange(tokens.shape[1], dtype=torch.float32)
        angle = place[:, None] * 500000.0 ** -(torch.arange(0, self.dim, 2) / self.dim)
        angles = (angle.cos(), angle.sin())
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, angles)
        return self.head(self.norm(x))


def replicated(size, tokens=8192, batch=1):
    """DDP: fp32 parameters, bf16 by autocast."""
    def made():
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(Decoder(*SIZES[size]), gradient_as_bucket_view=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        given = torch.zeros(batch, tokens, dtype=torch.long)

        def step():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(given)
            F.cross_entropy(out.flatten(0, 1).float(), given.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    return made


def build(size, tokens=8192, batch=1, again=False):
    """again: layers run a second time in the backward pass instead of keeping what they need."""
    def made():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = Decoder(*SIZES[size])
        for layer in model.layers:
            if again:
                from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        if again:
            apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Layer))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        given = torch.zeros(batch, tokens, dtype=torch.long)

        def step():
            F.cross_entropy(model(given).flatten(0, 1).float(), given.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    return made


def main():
    p = argparse.ArgumentParser()
    p.add_argument("size", choices=SIZES)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world-size", type=int, default=8)
    p.add_argument("--tokens", type=int, default=8192)
    p.add_argument("--again", action="store_true")
    p.add_argument("--ddp", action="store_true")
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    torch.set_num_threads(1)
    import tessera.torch
    begin = time.process_time()
    step = replicated(a.size, a.tokens) if a.ddp else build(a.size, a.tokens, again=a.again)
    print(tessera.torch.trace(step, a.rank, a.world_size, a.out, warmup=a.warmup, device="meta"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{time.process_time() - begin:.1f} s of CPU, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
