# SPDX-License-Identifier: Apache-2.0
"""measure.py - the measurement itself; run.py calls it inside the environment.

Both sides compute the same numbers on the same buffers in one process, sample by sample in turn
(alternate.py). Before anything is timed the results are compared, and a peer whose output differs by
more than 1e-4 is an error.

Ours is tessera.torch.sparse_attention; all sides allocate their outputs in every call, as they do for
their users. PyTorch and libtessera share one OpenMP runtime, ONNX Runtime has threads of its own; all
are set to the same number. Threads that wait still spin for some milliseconds, so each sample follows
a pause.

  sdpa         torch.nn.functional.scaled_dot_product_attention, fp32: forward, forward + backward
  flex         torch.compile(flex_attention), fp32, blocks of 128, density 0.125: forward (it has no
               backward on CPUs), all blocks listed as full
  onnxruntime  the MultiHeadAttention operator, fp32: forward
  sdpa_bf16    sdpa on bf16 tensors (oneDNN and PyTorch's own kernels), beside our products in bf16 on the same numbers:
               forward, forward + backward; shares are of the bf16 peak of the instruction set in use, and results differ
               by what bf16 outputs round, 3e-2 of the largest element at most
"""
import argparse
import importlib.metadata
import json
import statistics

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

import tessera
from alternate import Probe, alternate, cpu_name
from attend_bf16 import AttendBf16
from tessera.torch import sparse_attention, to_flex

BLOCK, DENSITY, APART, APART_BF16 = 128, 0.125, 1e-4, 3e-2


class Problem:
    """Buffers of one shape: [1, heads, tokens, dim], normal numbers."""

    def __init__(self, text):
        self.text = text
        sizes = {"heads": 1, **{key: int(value) for key, value in (word.split("=") for word in text.split(","))}}
        self.heads, self.dim, self.tokens = sizes["heads"], sizes["dim"], sizes["tokens"]
        torch.manual_seed(1)
        shape = (1, self.heads, self.tokens, self.dim)
        self.q, self.k, self.v, self.dout = (torch.randn(shape) for _ in range(4))
        self.qkv = self.q, self.k, self.v

    def products(self, density):
        """FLOP of one matrix product of the attention."""
        return 2.0 * density * self.heads * self.tokens * self.tokens * self.dim


def row(probe, problem, name, what, density, flop, sides, wanted, difference, most=APART):
    if not difference <= most:
        raise SystemExit(f"{problem.text}: {name} {what} and ours differ by {difference}")
    peer, ours, taken, disturbed, best = alternate(probe, *sides, wanted)
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


def run_sdpa(probe, p, wanted):
    forward = lambda: functional.scaled_dot_product_attention(*p.qkv)
    ours = lambda: sparse_attention(*p.qkv)
    with torch.no_grad():
        yield row(probe, p, "sdpa", "fwd", 1.0, 2 * p.products(1.0), (forward, ours), wanted, apart(forward(), ours()))

    inputs = [x.detach().requires_grad_() for x in p.qkv]
    both = lambda: torch.autograd.grad(functional.scaled_dot_product_attention(*inputs), inputs, p.dout)
    ours_both = lambda: torch.autograd.grad(sparse_attention(*inputs), inputs, p.dout)
    difference = max(apart(a, b) for a, b in zip(both(), ours_both()))
    yield row(probe, p, "sdpa", "fwd+bwd", 1.0, 7 * p.products(1.0), (both, ours_both), wanted, difference)


def run_sdpa_bf16(probe, p, wanted):
    halves = [x.bfloat16() for x in (*p.qkv, p.dout)]
    *qkv, dout = [x.float() for x in halves]
    attend = AttendBf16(qkv[0], probe.threads)
    if attend.isa is None:
        yield {"shape": p.text, "peer": "sdpa_bf16", "pass": "fwd", "density": 1.0,
               "skipped": "no instruction set of this machine multiplies bf16 faster than fp32"}
        return
    own = Probe(probe.threads, bf16=True)
    forward = lambda: functional.scaled_dot_product_attention(*halves[:3])
    with torch.no_grad():
        expected, found = forward().float(), attend.forward(*qkv)[0]
        yield row(own, p, "sdpa_bf16", "fwd", 1.0, 2 * p.products(1.0), (forward, lambda: attend.forward(*qkv)), wanted,
                  apart(expected, found) / expected.abs().max().item(), APART_BF16)

    inputs = [x.detach().requires_grad_() for x in halves[:3]]
    both = lambda: torch.autograd.grad(functional.scaled_dot_product_attention(*inputs), inputs, halves[3])
    difference = max(apart(a.float(), b) / a.abs().max().item() for a, b in zip(both(), attend.both(*qkv, dout)))
    yield row(own, p, "sdpa_bf16", "fwd+bwd", 1.0, 7 * p.products(1.0), (both, lambda: attend.both(*qkv, dout)), wanted,
              difference, APART_BF16)


def run_flex(probe, p, wanted):
    if p.tokens % BLOCK:
        yield {"shape": p.text, "peer": "flex", "pass": "fwd", "density": DENSITY,
               "skipped": f"tokens must be a multiple of {BLOCK}"}
        return
    blocks = p.tokens // BLOCK
    keep = max(1, round(DENSITY * blocks))
    # The same number of blocks in every row, so that the density is exact.
    selection = tessera.random(heads=p.heads, seq_q=p.tokens, q_block=BLOCK, k_block=BLOCK, keys=keep, seed=1)
    block_mask, options = to_flex(selection, "cpu")
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention)
    forward = lambda: compiled(*p.qkv, block_mask=block_mask, kernel_options=options)
    ours = lambda: sparse_attention(*p.qkv, selection)
    with torch.no_grad():
        yield row(probe, p, "flex", "fwd", selection.density, 2 * p.products(selection.density), (forward, ours), wanted,
                  apart(forward(), ours()))


def run_onnxruntime(probe, p, wanted):
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper
    width = p.heads * p.dim
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, p.tokens, width]) for x in "qkv"]
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, p.tokens, width])
    node = helper.make_node("MultiHeadAttention", list("qkv"), ["o"], domain="com.microsoft", num_heads=p.heads)
    model = helper.make_model(helper.make_graph([node], "attention", inputs, [output]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = probe.threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: numpy.ascontiguousarray(x[0].transpose(0, 1).reshape(1, p.tokens, width).numpy())
            for name, x in zip("qkv", (p.q, p.k, p.v))}
    forward = lambda: session.run(None, feed)
    ours = lambda: sparse_attention(*p.qkv)
    got = torch.from_numpy(forward()[0]).reshape(1, p.tokens, p.heads, p.dim).transpose(1, 2)
    with torch.no_grad():
        yield row(probe, p, "onnxruntime", "fwd", 1.0, 2 * p.products(1.0), (forward, ours), wanted, apart(got, ours()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shapes", nargs="+")
    for name in ("peers", "precision", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--samples", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    probe = Probe(options.threads)
    runs = {"sdpa": run_sdpa, "flex": run_flex, "onnxruntime": run_onnxruntime, "sdpa_bf16": run_sdpa_bf16}
    versions = {"torch": torch.__version__}
    if "onnxruntime" in options.peers.split(","):
        versions["onnxruntime"] = importlib.metadata.version("onnxruntime")
    results = [result for text in options.shapes for name in options.peers.split(",")
               for result in runs[name](probe, Problem(text), options.samples)]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"threads": probe.threads, "precision": options.precision,
                   "peak_gflops": max((r["peak_gflops"] for r in results if "skipped" not in r), default=0.0),
                   "machine": {"cpu": cpu_name(), "isa": probe.isa, "versions": versions}, "results": results}, file)


main()
