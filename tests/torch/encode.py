#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""encode.py - scripts/encode with tiny random weights: latents and embeddings are those of diffusers, a model
trains on them, and its samples become videos.

    python encode.py --tessera build/release/bin/tessera --script scripts/encode
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from diffusers import AutoencoderKLWan, WanPipeline
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

FRAMES, SIDE, ROWS = 5, 32, 12


def make_model(folder):
    """A folder like that of Wan2.1, with random weights of a few thousand numbers."""
    torch.manual_seed(3)
    vae = AutoencoderKLWan(base_dim=8, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
                           latents_mean=[.1, -.2, .3, 0], latents_std=[1.5, .5, 2, 1])
    vae.save_pretrained(folder / "vae")
    words = ["<pad>", "</s>", "<unk>", "a", "clip", "of", "shapes", "that", "move"]
    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder / "tokenizer")
    text = UMT5EncoderModel(UMT5Config(vocab_size=16, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3))
    text.save_pretrained(folder / "text_encoder")
    return vae.eval(), fast, text.eval()


def run(*words, want=0, env=None):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=env)
    if done.returncode != want:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}, must be {want}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(what, holds):
    print(f"{what}: {'right' if holds else 'WRONG'}")
    if not holds:
        sys.exit(1)


def same(what, ours, theirs):
    distance = float((ours.double() - theirs.double()).norm() / theirs.double().norm())
    check(f"{what}, {tuple(ours.shape)}, distance {distance:.1e}", ours.shape == theirs.shape and distance < 1e-6)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tessera", required=True, type=os.path.abspath)
    p.add_argument("--script", required=True, type=os.path.abspath)
    a = p.parse_args()
    env = dict(os.environ, TESSERA=a.tessera)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        vae, tokens, text = make_model(pathlib.Path("wan"))
        os.mkdir("clips")
        for i, frames in enumerate((FRAMES, 23)):
            run(a.tessera, "data", "shapes", "--frames", frames, "--first", i, "--count", 1, "-o", f"clips/c{i}.y4m")
        pathlib.Path("clips/c0.txt").write_text("a clip of shapes that move")
        size = ["--frames", FRAMES, "--height", SIDE, "--width", SIDE, "--fps", 0]
        encode = [sys.executable, a.script, "clips", "--model", "wan", *size, "--text-len", ROWS, "--out", "latents"]
        printed = run(*encode, env=env)
        names = sorted(f.stem for f in pathlib.Path("latents").glob("*.safetensors"))
        check(f"windows {names}", names == ["c0", "c1-000000", "c1-000005", "c1-000010", "c1-000018"])
        check("progress is printed", f"{len(names)} of {len(names)}" in printed)
        times = [os.stat(f"latents/{n}.safetensors").st_mtime_ns for n in names]
        run(*encode, env=env)
        check("what is there is not made again", times == [os.stat(f"latents/{n}.safetensors").st_mtime_ns for n in names])

        # Latents are those of the VAE, embeddings those of the pipeline.
        run(a.tessera, "data", "clips/c0.y4m", *size, "--stride", FRAMES, "--count", 1, "-o", "pixels.npy")
        pixels = torch.from_numpy(numpy.load("pixels.npy"))
        mean, deviation = (torch.tensor(v).view(1, -1, 1, 1, 1) for v in (vae.config.latents_mean, vae.config.latents_std))
        with torch.no_grad():
            z = (vae.encode(pixels).latent_dist.mode() - mean) / deviation
        same("latent", load_file("latents/c0.safetensors")["latent"], z[0])
        pipe = WanPipeline(tokenizer=tokens, text_encoder=text, vae=vae, scheduler=None, transformer=None)
        with torch.no_grad():
            rows = pipe._get_t5_prompt_embeds("a clip of shapes that move", max_sequence_length=ROWS)[0]
        same("embedding", load_file("latents/text/c0.safetensors")["text"], rows)

        # A model trains on them; its sample is decoded as the VAE does.
        run(a.tessera, "train", "--preset", "tiny", "--data", "latents", "--text", "latents/text", "--steps", 2,
            "--batch", 2, "--out", "run", "-q")
        run(a.tessera, "sample", "run", "--text", "latents/text/c0.safetensors", "--steps", 2, "-o", "sample.npy")
        run(sys.executable, a.script, "--decode", "sample.npy", "--model", "wan", "--out", "sample.y4m", env=env)
        run(a.tessera, "data", "sample.y4m", *size, "--stride", 0, "--count", 1, "-o", "shown.npy")
        latent = torch.from_numpy(numpy.load("sample.npy"))
        with torch.no_grad():
            x = vae.decode(latent * deviation + mean).sample.clamp(-1, 1)
        shown = torch.from_numpy(numpy.load("shown.npy"))
        # Bytes, twice rounded, through YUV of 8 bits: within 4 of 255.
        check(f"video {tuple(shown.shape)}", shown.shape == x.shape and float((shown - x).abs().max()) < 4 / 127.5)

        wrong = [(["--frames", 6], "--frames is 6, must be 4 k + 1: 5 or 9"),
                 (["--height", 30], "--height is 30, must be a multiple of 16 (VAE 8 x patch 2): 16 or 32"),
                 (["--model", "clips"], "clips: has no folder vae, must be Wan2.1 as diffusers stores it")]
        for words, sentence in wrong:
            check(sentence, run(*encode, *words, want=1, env=env).strip() == "encode: " + sentence)


main()
