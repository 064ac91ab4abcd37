# SPDX-License-Identifier: Apache-2.0
"""step_measure.py - one measurement of step.py, which calls it inside the environment.

    time          both sides on the same weights and inputs in one process, sample by sample in turn
                  (alternate.py); output and gradients are compared first
    peer-memory   the growth of the process's peak from before the model is made until two steps are
    our-memory    done, each in a process of its own: without the libraries' own code

A step is what a training loop repeats without its optimiser: gradients to zero, forward, the mean
squared error against a target, backward. The model is WanTransformer3DModel with 4 heads of 128, 4
layers and a feed-forward layer of 2048; text of 512 vectors. Its last layer and its modulation are
made random, so that every gradient is one. `time` leaves it in the folder for the others.
"""
import argparse
import ctypes
import json
import os
import resource
import statistics

import numpy

from alternate import Probe, alternate, cpu_name
from train_library import Step, TrainLibrary

HEADS, HEAD_DIM, LAYERS, FFN, CHANNELS, TEXT, TEXT_DIM = 4, 128, 4, 2048, 16, 512, 4096
APART = 1e-3  # gradients, relative to each tensor's largest


def grid(tokens):
    """Frames, rows and columns as near to a cube as divisors allow."""
    frames = max(i for i in range(1, tokens + 1) if tokens % i == 0 and i ** 3 <= tokens + 1)
    rest = tokens // frames
    rows = max(i for i in range(1, rest + 1) if rest % i == 0 and i * i <= rest)
    return frames, rows, rest // rows


def inputs(tokens):
    """x, timestep, text, target."""
    frames, rows, columns = grid(tokens)
    random = numpy.random.default_rng(1)
    x = random.standard_normal((1, CHANNELS, frames, 2 * rows, 2 * columns), numpy.float32)
    text = random.standard_normal((1, TEXT, TEXT_DIM), numpy.float32)
    return x, numpy.array([417.0], numpy.float32), text, random.standard_normal(x.shape, numpy.float32)


class Ours:
    def __init__(self, options):
        self.x, self.timestep, self.text, self.target = inputs(options.tokens)
        self.out = numpy.empty_like(self.x)
        _, _, frames, height, width = self.x.shape
        shape = {"batch": 1, "frames": frames, "height": height, "width": width, "text_len": TEXT, "train": 1,
                 "keep": int(options.keep == "blocks"), "store": int(options.store == "bf16")}
        self.net = Step(TrainLibrary(options.library, options.threads), options.folder, shape)

    def step(self):
        self.net.forward(self.x.ctypes.data, self.timestep.ctypes.data, self.text.ctypes.data, self.out.ctypes.data)
        dout = (self.out - self.target) * numpy.float32(2.0 / self.out.size)
        self.net.backward(dout.ctypes.data)

    def gradients(self):
        for name, count, address in self.net.params():
            yield name, numpy.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))


class Peer:
    def __init__(self, options, make):
        import torch
        from diffusers import WanTransformer3DModel
        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        self.x, self.timestep, self.text, self.target = map(torch.from_numpy, inputs(options.tokens))
        if make:
            self.model = WanTransformer3DModel(num_attention_heads=HEADS, attention_head_dim=HEAD_DIM,
                                               num_layers=LAYERS, ffn_dim=FFN, in_channels=CHANNELS,
                                               out_channels=CHANNELS, text_dim=TEXT_DIM)
            for name, p in self.model.named_parameters():
                if "scale_shift_table" in name or "proj_out" in name:
                    torch.nn.init.normal_(p, std=0.05)
            self.model.save_pretrained(options.folder)
        else:
            self.model = WanTransformer3DModel.from_pretrained(options.folder)
        self.torch, self.out = torch, None

    def step(self):
        self.model.zero_grad(set_to_none=True)
        self.out = self.model(self.x, self.timestep, self.text, return_dict=False)[0]
        self.torch.nn.functional.mse_loss(self.out, self.target).backward()


def compare(ours, peer):
    """The largest differences of the output and of any gradient, relative to the largest value."""
    def apart(a, b):
        return float(abs(a - b).max() / abs(b).max())
    named = dict(peer.model.named_parameters())
    gradient = max(apart(g, named[name].grad.numpy().reshape(-1)) for name, g in ours.gradients())
    return apart(ours.out, peer.out.detach().numpy()), gradient


def run_time(options):
    peer = Peer(options, True)
    ours = Ours(options)
    peer.step(), ours.step()
    output, gradient = compare(ours, peer)
    if options.store == "f32" and not (output <= APART and gradient <= APART):
        raise SystemExit(f"diffusers and ours differ: output by {output}, gradients by {gradient}")
    probe = Probe(options.threads)
    theirs, mine, taken, disturbed, _ = alternate(probe, peer.step, ours.step, options.samples)
    return {"tokens": options.tokens, "threads": options.threads, "keep": options.keep, "store": options.store,
            "cpu": cpu_name(), "isa": probe.isa, "torch": peer.torch.__version__,
            "peer_seconds": statistics.median(theirs), "ours_seconds": statistics.median(mine),
            "peer_seconds_best": min(theirs), "ours_seconds_best": min(mine), "kept": min(len(theirs), len(mine)),
            "taken": taken, "disturbed": disturbed, "output_apart": output, "gradient_apart": gradient}


def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_memory(options, make):
    before = peak()
    side = make()
    side.step(), side.step()
    return {"bytes": peak() - before}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("time", "peer-memory", "our-memory"))
    for name in ("library", "folder", "keep", "store"):
        parser.add_argument("--" + name, required=True)
    for name in ("tokens", "threads", "samples"):
        parser.add_argument("--" + name, type=int, required=True)
    options = parser.parse_args()
    if options.what == "time":
        result = run_time(options)
    elif options.what == "peer-memory":
        import torch  # its code counts for neither side
        from diffusers import WanTransformer3DModel
        torch.set_num_threads(options.threads), WanTransformer3DModel
        result = run_memory(options, lambda: Peer(options, False))
    else:
        result = run_memory(options, lambda: Ours(options))
    json.dump(result, os.fdopen(1, "w"))


main()
