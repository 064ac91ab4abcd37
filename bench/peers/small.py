#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""small.py - training steps of the demo's model, here and in PyTorch, on the same cores.

    small.py --tessera build/release/bin/tessera [--threads 2] [--rounds 3] [--steps 25]

Both sides run whole steps of the preset `small` on clips of 8 x 32 x 32 pixels, batch 4: forward, mean
squared error of the velocity, backward, clipping, Muon for the blocks' matrices and AdamW for the rest,
a running average of the weights. PyTorch's clips are random numbers that lie ready; ours are drawn by
the loader. The sides take turns; the medians of all steps are compared. Needs torch and diffusers:
scripts/torch-env makes an environment that has them.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time

import torch
from diffusers import WanTransformer3DModel


def orthogonal(g, steps=5):
    """Newton-Schulz as Muon has it (Jordan et al. 2024)."""
    x = g / (g.norm() + 1e-7)
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if turned else x


class Peer:
    def __init__(self, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.model = WanTransformer3DModel(num_attention_heads=2, attention_head_dim=48, in_channels=12,
                                           out_channels=12, text_dim=64, freq_dim=256, ffn_dim=384, num_layers=4)
        named = dict(self.model.named_parameters())
        self.matrices = [p for name, p in named.items() if name.startswith("blocks") and p.ndim == 2]
        chosen = {id(p) for p in self.matrices}
        self.rest = torch.optim.AdamW([p for p in named.values() if id(p) not in chosen], lr=3e-3, betas=(0.9, 0.99),
                                      weight_decay=0, foreach=True)
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.x0, self.text = torch.randn(4, 12, 8, 16, 16), torch.randn(4, 16, 64)

    def muon(self):
        for p, m in zip(self.matrices, self.momentum):
            m.mul_(0.95).add_(p.grad)
            update = orthogonal(p.grad + 0.95 * m)
            p.data.add_(update, alpha=-0.02 * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)

    def step(self):
        s = torch.rand(4)
        noise = torch.randn_like(self.x0)
        level = s.view(4, 1, 1, 1, 1)
        out = self.model((1 - level) * self.x0 + level * noise, 1000 * s, self.text, return_dict=False)[0]
        self.model.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(out, noise - self.x0).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        with torch.no_grad():
            self.rest.step()
            self.muon()
            torch._foreach_lerp_(self.average, list(self.model.parameters()), 0.005)


def our_times(options):
    with tempfile.TemporaryDirectory(prefix="tessera-small-") as folder:
        command = [options.tessera, "train", "--preset", "small", "--data", "shapes", "--steps", str(options.steps),
                   "--out", folder + "/run", "--checkpoint-every", "0", "--validate-every", "0", "--quiet",
                   "--threads", str(options.threads)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(folder + "/run/metrics.jsonl") as lines:
            return [json.loads(line)["step_ms"] for line in lines][2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", required=True)
    for name, value in (("threads", 2), ("rounds", 3), ("steps", 25)):
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    peer, ours, theirs = Peer(options.threads), [], []
    for _ in range(options.rounds):
        ours += our_times(options)
        for i in range(options.steps):
            begin = time.perf_counter()
            peer.step()
            if i > 1:
                theirs.append(1e3 * (time.perf_counter() - begin))
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{options.threads} threads: tessera {a:.1f} ms a step, PyTorch {torch.__version__} {b:.1f} ms: {b / a:.2f}x"
          f" (best {min(ours):.1f}, {min(theirs):.1f})")


main()
