#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# make_golden.py - makes the golden models of tests/data/golden with diffusers.
#
#   python3 -m venv v && v/bin/pip install torch==2.15.0 diffusers==0.42.1
#   v/bin/python tests/golden/make_golden.py
#
# Each case is a folder that diffusers' save_pretrained wrote (config.json and weights: one file,
# shards with an index, or BF16), and golden.safetensors: the inputs x, timestep and text, the output
# out, dout, and for the loss sum(out * dout) its gradients dx and grad.NAME of every parameter. All
# of it is computed in fp32. The metadata names the versions that made it. test_golden.c compares.
import os
import shutil

import diffusers
import torch
from diffusers import WanTransformer3DModel
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data", "golden")

# Odd grids of tokens, every head_dim with another split between time, rows and columns, a patch
# longer than one frame, and a timestep that is no whole number.
CASES = {
    "one_file": {
        "config": dict(num_attention_heads=2, attention_head_dim=16, in_channels=3, out_channels=4, text_dim=9,
                       freq_dim=14, ffn_dim=40, num_layers=2),
        "latent": (2, 3, 3, 10, 6), "text": 5,
    },
    "shards": {
        "config": dict(num_attention_heads=2, attention_head_dim=24, in_channels=4, out_channels=4, text_dim=8,
                       freq_dim=8, ffn_dim=26, num_layers=2, cross_attn_norm=False, eps=1e-5),
        "latent": (2, 4, 3, 6, 10), "text": 7, "shard": "120KB",
    },
    "bf16": {
        "config": dict(num_attention_heads=1, attention_head_dim=48, in_channels=2, out_channels=3, text_dim=6,
                       freq_dim=16, ffn_dim=36, num_layers=2, patch_size=(2, 1, 3)),
        "latent": (2, 2, 6, 5, 9), "text": 6, "dtype": torch.bfloat16,
    },
}


def fill(model, generator, dtype):
    """Random numbers that dtype holds, everywhere: what a new model has at 0 or 1 would hide mistakes."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                noise = 1 + 0.3 * noise
            elif p.dim() == 1 or "table" in name:
                noise = 0.3 * noise
            else:
                noise = noise / p[0].numel() ** 0.5
            p.copy_(noise.to(dtype))


def make(name, case, seed):
    generator = torch.Generator().manual_seed(seed)
    dtype = case.get("dtype", torch.float32)
    model = WanTransformer3DModel(**case["config"])
    fill(model, generator, dtype)
    batch = case["latent"][0]
    x = torch.randn(case["latent"], generator=generator).requires_grad_()
    timestep = torch.tensor([871.5, 3.25][:batch])
    text = torch.randn((batch, case["text"], case["config"]["text_dim"]), generator=generator)
    out = model(x, timestep, text, return_dict=False)[0]
    dout = torch.randn(out.shape, generator=generator)
    (out * dout).sum().backward()
    tensors = {"x": x, "timestep": timestep, "text": text, "out": out, "dout": dout, "dx": x.grad}
    # Copies: model.to(dtype) below rounds gradients too.
    tensors |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}

    folder = os.path.join(data, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, max_shard_size=case.get("shard", "10GB"))
    save_file({n: t.detach().contiguous() for n, t in tensors.items()}, os.path.join(folder, "golden.safetensors"),
              metadata={"versions": f"diffusers {diffusers.__version__}, torch {torch.__version__.split('+')[0]}"})
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)


torch.set_num_threads(1)
for number, (name, case) in enumerate(CASES.items()):
    make(name, case, number)
