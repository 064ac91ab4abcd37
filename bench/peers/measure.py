# SPDX-License-Identifier: Apache-2.0
"""measure.py - the measurement itself; run.py calls it inside the environment.

Both sides compute the same numbers on the same buffers in one process, sample by sample in turn
(alternate.py). Before anything is timed the results are compared, and a peer whose output differs by
more than 1e-4 is an error.

PyTorch brings its own OpenMP runtime beside the one libtessera uses, and ONNX Runtime its own
threads; all are set to the same number. Threads that wait still spin for some milliseconds, so each
sample follows a pause. The peers allocate their outputs in every call, as they do for their users;
libtessera writes into the caller's.

  sdpa         torch.nn.functional.scaled_dot_product_attention, fp32: forward, forward + backward
  flex         torch.compile(flex_attention), fp32, blocks of 128, density 0.125: forward (it has no
               backward on CPUs)
  onnxruntime  the MultiHeadAttention operator, fp32: forward
"""
import argparse
import json
import statistics

import numpy
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch.nn import functional
from torch.nn.attention import flex_attention

import tessera_c
from alternate import alternate, cpu_name

BLOCK, DENSITY, APART = 128, 0.125, 1e-4


class Problem:
    """Buffers of one shape: [1, heads, tokens, dim], normal numbers."""

    def __init__(self, text):
        self.text = text
        sizes = {"heads": 1, **{key: int(value) for key, value in (word.split("=") for word in text.split(","))}}
        self.heads, self.dim, self.tokens = sizes["heads"], sizes["dim"], sizes["tokens"]
        torch.manual_seed(1)
        shape = (1, self.heads, self.tokens, self.dim)
        self.q, self.k, self.v, self.dout = (torch.randn(shape) for _ in range(4))
        self.o, self.dq, self.dk, self.dv = (torch.zeros(shape) for _ in range(4))
        self.lse = torch.zeros(shape[:3])

    def products(self, density):
        """FLOP of one matrix product of the attention."""
        return 2.0 * density * self.heads * self.tokens * self.tokens * self.dim


def row(tessera, problem, name, what, density, flop, sides, wanted, difference):
    if not difference <= APART:
        raise SystemExit(f"{problem.text}: {name} {what} and ours differ by {difference}")
    peer, ours, taken, disturbed, best = alternate(tessera, *sides, wanted)
    median = {"peer": statistics.median(peer), "ours": statistics.median(ours)}
    return {"shape": problem.text, "peer": name, "pass": what, "density": density, "peak_gflops": best / 1e9,
            "peer_seconds": median["peer"], "ours_seconds": median["ours"],
            "peer_seconds_best": min(peer), "ours_seconds_best": min(ours),
            "peer_gflops": flop / median["peer"] / 1e9, "ours_gflops": flop / median["ours"] / 1e9,
            "ours_share_of_peak": flop / median["ours"] / best,
            "ratio_median": median["peer"] / median["ours"], "ratio_best": min(peer) / min(ours),
            "max_difference": difference, "kept": min(len(peer), len(ours)), "taken": taken, "disturbed": disturbed}


def apart(a, b):
    return (a - b).abs().max().item()


def dense_forward(tessera, p):
    """Our side, run once: p.o and p.lse are set."""
    attention = tessera_c.Attention(tessera, p.heads, p.tokens, p.dim)
    ours = lambda: attention.forward(p.q, p.k, p.v, p.o, p.lse)
    ours()
    return attention, ours


def run_sdpa(tessera, p, wanted):
    attention, ours = dense_forward(tessera, p)
    forward = lambda: functional.scaled_dot_product_attention(p.q, p.k, p.v)
    with torch.no_grad():
        yield row(tessera, p, "sdpa", "fwd", 1.0, 2 * p.products(1.0), (forward, ours), wanted, apart(forward(), p.o))

    inputs = [x.detach().requires_grad_() for x in (p.q, p.k, p.v)]

    def both():
        o = functional.scaled_dot_product_attention(*inputs)
        return torch.autograd.grad(o, inputs, p.dout)

    def ours_both():
        ours()
        attention.backward(p.q, p.k, p.v, p.o, p.lse, p.dout, p.dq, p.dk, p.dv)
    ours_both()
    difference = max(apart(a, b) for a, b in zip(both(), (p.dq, p.dk, p.dv)))
    yield row(tessera, p, "sdpa", "fwd+bwd", 1.0, 7 * p.products(1.0), (both, ours_both), wanted, difference)
    attention.close()


def run_flex(tessera, p, wanted):
    if p.tokens % BLOCK:
        yield {"shape": p.text, "peer": "flex", "pass": "fwd", "density": DENSITY,
               "skipped": f"tokens must be a multiple of {BLOCK}"}
        return
    blocks = p.tokens // BLOCK
    keep = max(1, round(DENSITY * blocks))
    # The same number of blocks in every row, so that the density is exact.
    mask = torch.zeros(p.heads, blocks, blocks, dtype=torch.bool)
    mask.scatter_(2, torch.rand(p.heads, blocks, blocks).topk(keep, dim=2).indices, True)
    density = keep / blocks
    block_mask = flex_attention.create_block_mask(lambda b, h, i, j: mask[h, i // BLOCK, j // BLOCK], 1, p.heads,
                                                  p.tokens, p.tokens, device="cpu", BLOCK_SIZE=BLOCK)
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention.flex_attention)
    forward = lambda: compiled(p.q, p.k, p.v, block_mask=block_mask)
    attention = tessera_c.Attention(tessera, p.heads, p.tokens, p.dim, mask, BLOCK)
    ours = lambda: attention.forward(p.q, p.k, p.v, p.o, p.lse)
    ours()
    with torch.no_grad():
        yield row(tessera, p, "flex", "fwd", density, 2 * p.products(density), (forward, ours), wanted,
                  apart(forward(), p.o))
    attention.close()


def run_onnxruntime(tessera, p, wanted):
    width = p.heads * p.dim
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, p.tokens, width]) for x in "qkv"]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, p.tokens, width])
    node = helper.make_node("MultiHeadAttention", list("qkv"), ["o"], domain="com.microsoft", num_heads=p.heads)
    model = helper.make_model(helper.make_graph([node], "attention", inputs, [output]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = tessera.threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: numpy.ascontiguousarray(x[0].transpose(0, 1).reshape(1, p.tokens, width).numpy())
            for name, x in zip("qkv", (p.q, p.k, p.v))}
    forward = lambda: session.run(None, feed)
    attention, ours = dense_forward(tessera, p)
    got = torch.from_numpy(forward()[0]).reshape(1, p.tokens, p.heads, p.dim).transpose(1, 2)
    yield row(tessera, p, "onnxruntime", "fwd", 1.0, 2 * p.products(1.0), (forward, ours), wanted, apart(got, p.o))
    attention.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="+")
    for name in ("library", "peers", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tessera = tessera_c.Tessera(options.library, options.threads)
    runs = {"sdpa": run_sdpa, "flex": run_flex, "onnxruntime": run_onnxruntime}
    results = [result for text in options.shapes for name in options.peers.split(",")
               for result in runs[name](tessera, Problem(text), options.samples)]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"threads": tessera.threads, "precision": "fp32",
                   "peak_gflops": max((r["peak_gflops"] for r in results if "skipped" not in r), default=0.0),
                   "machine": {"cpu": cpu_name(), "isa": tessera.isa,
                               "versions": {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}},
                   "results": results}, file)


main()
