#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""roundtrip.py - models go to diffusers and come back, and compute the same on both sides.

    python roundtrip.py --tool build/release/bin/model_io --tessera build/release/bin/tessera

Runs in an interpreter that has torch and diffusers (scripts/torch-env makes one). Each step prints
one line; a step that fails ends the run. The measure of distance is norm(ours - theirs) /
norm(theirs) of each tensor, output and every gradient apart, and must stay below 1e-4.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile

import diffusers
import torch
from diffusers import WanTransformer3DModel
from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers
from safetensors.torch import load_file, save_file

LIMIT = 1e-4
WEIGHTS = "diffusion_pytorch_model.safetensors"


def inputs(config, batch, grid, text_len, seed):
    """Random inputs and gradients of the output, for a grid of tokens."""
    generator = torch.Generator().manual_seed(seed)
    latent = [g * p for g, p in zip(grid, config["patch_size"])]
    return {
        "x": torch.randn([batch, config["in_channels"], *latent], generator=generator),
        "timestep": 1000 * torch.rand([batch], generator=generator),
        "text": torch.randn([batch, text_len, config["text_dim"]], generator=generator),
        "dout": torch.randn([batch, config["out_channels"], *latent], generator=generator),
    }


def theirs(model, given):
    """Output and gradients of diffusers' model."""
    x = given["x"].clone().requires_grad_()
    model.zero_grad()
    out = model(x, given["timestep"], given["text"], return_dict=False)[0]
    (out * given["dout"]).sum().backward()
    results = {"out": out.detach(), "dx": x.grad}
    return results | {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}


def ours(tool, model_folder, given, folder):
    """Output and gradients of the model in a folder, computed here."""
    before, after = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
    save_file(given, before)
    subprocess.run([tool, "run", model_folder, before, after], check=True)
    return load_file(after)


def compare(step, got, want):
    assert got.keys() == want.keys(), f"{step}: other tensors: {got.keys() ^ want.keys()}"
    worst = max((float((got[n] - want[n]).norm() / want[n].norm()), n) for n in want)
    print(f"{step}: {len(want)} tensors, the worst apart by {worst[0]:.2e} ({worst[1]})", flush=True)
    assert worst[0] < LIMIT, f"{step}: {worst[1]} is apart by {worst[0]:.3g}, must be below {LIMIT:g}"


def open_there(folder):
    """diffusers' model of a folder; every parameter must have come from the file."""
    model, info = WanTransformer3DModel.from_pretrained(folder, output_loading_info=True)
    left = {key: value for key, value in info.items() if value}
    assert not left, f"{folder}: diffusers reports {left}"
    return model


def randomise(model, seed):
    """Nothing stays at 0 or 1, and nothing grows from layer to layer."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            size = p[0].numel() if p.dim() in (2, 5) else 16
            p.add_(0.8 * torch.randn(p.shape, generator=generator) / size**0.5)
    return model


def same_weights(step, a, b):
    assert a.keys() == b.keys(), f"{step}: other tensors: {a.keys() ^ b.keys()}"
    for name in a:
        assert torch.equal(a[name], b[name]), f"{step}: {name} has other numbers"
    print(f"{step}: {len(a)} tensors with the same bits", flush=True)


def from_there(tool, folder, name, options, **saving):
    """A model made there opens here, computes the same, and goes back under both sides' names."""
    model = randomise(WanTransformer3DModel(**options), 1)
    first = os.path.join(folder, name)
    model.save_pretrained(first, **saving)
    given = inputs(model.config, 2, (3, 5, 7), 6, 2)
    compare(f"{name}, made there", ours(tool, first, given, folder), theirs(model, given))

    back, original = first + "-back", first + "-original"
    subprocess.run([tool, "copy", first, back, "diffusers"], check=True)
    same_weights(f"{name}, back there", open_there(back).state_dict(), model.state_dict())
    subprocess.run([tool, "copy", first, original, "original"], check=True)
    converted = convert_wan_transformer_to_diffusers(load_file(os.path.join(original, WEIGHTS)))
    same_weights(f"{name}, renamed there", converted, model.state_dict())
    compare(f"{name}, under the original names", ours(tool, original, given, folder), theirs(model, given))


def half(tool, folder, dtype):
    """A file of 16-bit numbers: the same numbers in fp32 there."""
    name = str(dtype).split(".")[1]
    first = os.path.join(folder, name)
    model = randomise(WanTransformer3DModel(**OPTIONS["one file"][0]), 3).to(dtype)
    model.save_pretrained(first)
    wide = WanTransformer3DModel.from_pretrained(first, torch_dtype=torch.float32)
    given = inputs(wide.config, 1, (2, 3, 4), 5, 4)
    compare(f"{name}, made there", ours(tool, first, given, folder), theirs(wide, given))


def exported(tessera, folder):
    """A checkpoint's weights as bf16, as docs/training.md says: diffusers opens the folder, and the numbers are those that
    PyTorch rounds to."""
    first, second = os.path.join(folder, "masters"), os.path.join(folder, "exported")
    model = randomise(WanTransformer3DModel(**OPTIONS["one file"][0]), 9)
    model.save_pretrained(first)
    os.mkdir(second)
    shutil.copy(os.path.join(first, "config.json"), second)
    subprocess.run([tessera, "tensor", os.path.join(first, WEIGHTS), "--dtype", "BF16", "-o", os.path.join(second, WEIGHTS)],
                   check=True, stdout=subprocess.DEVNULL)
    opened, info = WanTransformer3DModel.from_pretrained(second, torch_dtype=torch.bfloat16, output_loading_info=True)
    assert not any(info.values()), f"{second}: diffusers reports {info}"
    file = load_file(os.path.join(second, WEIGHTS))
    same_weights("exported as bf16", file, {name: x.bfloat16() for name, x in load_file(os.path.join(first, WEIGHTS)).items()})
    same_weights("exported as bf16, there", {name: x.float() for name, x in opened.state_dict().items()},
                 {name: x.float() for name, x in file.items()})


def other_forms(tool, folder):
    """What third parties have: variants, also in shards, a pipeline's folder, other words for qk_norm."""
    for name, saving in (("variant", {}), ("variant shards", {"max_shard_size": "100KB"})):
        first = os.path.join(folder, name)
        model = randomise(WanTransformer3DModel(**OPTIONS["one file"][0]), 6).to(torch.float16)
        model.save_pretrained(first, variant="fp16", **saving)
        assert not os.path.exists(os.path.join(first, WEIGHTS)), f"{first}: has weights without a variant"
        wide = WanTransformer3DModel.from_pretrained(first, variant="fp16", torch_dtype=torch.float32)
        given = inputs(wide.config, 1, (2, 3, 4), 5, 4)
        compare(name, ours(tool, first, given, folder), theirs(wide, given))
    for word in (None, "rms_norm", "layer_norm"):
        pipeline = os.path.join(folder, f"pipeline-{word}")
        model = randomise(WanTransformer3DModel(**OPTIONS["one file"][0], qk_norm=word), 7)
        model.save_pretrained(os.path.join(pipeline, "transformer"))
        given = inputs(model.config, 1, (2, 3, 4), 5, 8)
        compare(f"a pipeline with qk_norm {word}", ours(tool, pipeline, given, folder), theirs(model, given))


def from_here(tool, folder):
    """A model made here opens there and computes the same."""
    made = os.path.join(folder, "made")
    subprocess.run([tool, "make", "tiny", "7", made], check=True)
    model = open_there(made)
    given = inputs(model.config, 2, (4, 4, 4), 8, 5)
    compare("tiny, made here", ours(tool, made, given, folder), theirs(model, given))
    again = os.path.join(folder, "again")
    model.save_pretrained(again)
    config, kept = (json.load(open(os.path.join(f, "config.json"))) for f in (made, again))
    kept.pop("_name_or_path", None)
    assert config | {"_diffusers_version": diffusers.__version__} == kept, f"config.json: {config}, there {kept}"
    print("config.json, made here: the same keys and values when saved there", flush=True)


COMMON = dict(in_channels=4, out_channels=6, text_dim=10, freq_dim=24, ffn_dim=90, num_layers=2)
OPTIONS = {
    "one file": (dict(COMMON, num_attention_heads=3, attention_head_dim=24), {}),
    "shards": (dict(COMMON, num_attention_heads=2, attention_head_dim=64, cross_attn_norm=False),
               {"max_shard_size": "400KB"}),
    "a real head": (dict(COMMON, num_attention_heads=1, attention_head_dim=128, patch_size=(2, 2, 1)), {}),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--tessera", required=True)
    programs = parser.parse_args()
    tool = programs.tool
    print(f"diffusers {diffusers.__version__}, torch {torch.__version__}", flush=True)
    diffusers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        for name, (options, saving) in OPTIONS.items():
            from_there(tool, folder, name.replace(" ", "_"), options, **saving)
        half(tool, folder, torch.bfloat16)
        half(tool, folder, torch.float16)
        exported(programs.tessera, folder)
        other_forms(tool, folder)
        from_here(tool, folder)
    print("all steps passed")


main()
