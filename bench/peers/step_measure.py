# SPDX-License-Identifier: Apache-2.0
"""step_measure.py - one measurement of step.py, which calls it inside the environment.

    time          both sides on the same weights and inputs in one process, sample by sample in turn
                  (alternate.py); output and gradients are compared first
    peer-memory   the growth of the process's peak from before the model is made until two steps are
    our-memory    done, each in a process of its own: without the libraries' own code

A step is what a training loop repeats without its optimiser: gradients to zero, forward, the mean
squared error against a target, backward. The model is WanTransformer3DModel with 4 heads of 128, 4
layers and a feed-forward layer of 2048; text of 512 vectors. Its last layer and its modulation are
made random, so that every gradient is one. `time` leaves it in the folder for the others. In bf16 diffusers runs
under autocast: weights and gradients in fp32 on both sides, products and what is saved in bf16.
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
APART = 1e-3       # gradients, relative to each tensor's largest
APART_BF16 = 3e-2  # the length of all differences, relative to that of all gradients


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
                 "keep": int(options.keep == "blocks"), "store": int(options.store == "bf16"),
                 "precision": int(options.precision == "bf16")}
        library = TrainLibrary(options.library, options.threads)
        self.products = library.products() if options.precision == "bf16" else "fp32"
        self.net = Step(library, options.folder, shape)

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
        self.torch, self.out, self.bf16 = torch, None, options.precision == "bf16"

    def step(self):
        self.model.zero_grad(set_to_none=True)
        with self.torch.autocast("cpu", dtype=self.torch.bfloat16, enabled=self.bf16):
            self.out = self.model(self.x, self.timestep, self.text, return_dict=False)[0].float()
        self.torch.nn.functional.mse_loss(self.out, self.target).backward()


def compare(ours, peer):
    """The largest differences of the output and of any gradient, relative to the largest value; in bf16, where both sides
    round, lengths instead of largest values, and all gradients as one vector."""
    named = dict(peer.model.named_parameters())
    output = ours.out, peer.out.detach().numpy()
    gradients = [(g, named[name].grad.numpy().reshape(-1)) for name, g in ours.gradients()]
    if not peer.bf16:
        apart = [float(abs(a - b).max() / abs(b).max()) for a, b in (output, *gradients)]
        return apart[0], max(apart[1:])

    def length(arrays):
        return sum(float((x.astype(numpy.float64) ** 2).sum()) for x in arrays) ** 0.5
    return tuple(length(a - b for a, b in pairs) / length(b for _, b in pairs) for pairs in ([output], gradients))


def run_time(options):
    peer = Peer(options, True)
    ours = Ours(options)
    peer.step(), ours.step()
    output, gradient = compare(ours, peer)
    most = APART if options.precision == "fp32" else APART_BF16
    if options.store == "f32" and not (output <= most and gradient <= most):
        raise SystemExit(f"diffusers and ours differ: output by {output}, gradients by {gradient}")
    probe = Probe(options.threads)
    theirs, mine, taken, disturbed, _ = alternate(probe, peer.step, ours.step, options.samples)
    return {"tokens": options.tokens, "threads": options.threads, "keep": options.keep, "store": options.store,
            "precision": options.precision, "products": ours.products, "cpu": cpu_name(), "isa": probe.isa, "torch": peer.torch.__version__,
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
    for name in ("library", "folder", "keep", "store", "precision"):
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
