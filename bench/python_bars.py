#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_bars.py - times of the Python package beside PyTorch's, against what they must reach.

    PYTHONPATH=build/release/python "$(scripts/torch-env)" bench/python_bars.py [--samples 7] [--threads 1,2] [--cpu]
                                                           [--only attention,calls,...] [--profiles FOLDER]

    attention  tessera.torch.sparse_attention against F.scaled_dot_product_attention, fp32, dense, forward + backward, and
               at density 0.125 in blocks of 128 against compiled FlexAttention; 4 heads, 4096 tokens, 1 and 2 threads
    calls      the operator on tiny tensors, one thread
    plan       tessera.plan of 40 weights on 8 ranks
    import     `import tessera` beyond NumPy, elapsed time, with CPU time and that of `import numpy` in the same process beside it
    order      compute_perm against the snake order of xDiT, on the densities of FOLDER/*.csv (step,layer,head,density)

Ratios are of medians over alternating samples of one run; the fastest samples are printed too. Run it on an otherwise idle
machine: exit 1 if a bar is missed.
"""
import argparse
import csv
import glob
import os
import platform
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import tessera
import tessera.torch

missed = []


def report(name, value, bar, unit, at_least):
    good = value >= bar if at_least else value <= bar
    if not good:
        missed.append(name)
    print(f"{name:66} {value:8.3f} {unit}  bar {'>=' if at_least else '<='} {bar:g}{'' if good else '  MISSED'}", flush=True)


def timed(call, clock):
    began = clock()
    call()
    return clock() - began


def compare(name, peer, ours, samples, bar, clock):
    """Prints the peer's time over ours; sides take turns."""
    peer(), ours()
    pairs = [(timed(peer, clock), timed(ours, clock)) for _ in range(samples)]
    theirs, mine = zip(*pairs)
    best = f"(best {min(theirs) / min(mine):.2f}; medians {1e3 * statistics.median(theirs):.1f}, {1e3 * statistics.median(mine):.1f} ms)"
    report(name, statistics.median(theirs) / statistics.median(mine), bar, f"x {best}", True)


def bars_attention(options):
    clock = time.process_time if options.cpu else time.perf_counter
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        for head_dim, dense_bar, sparse_bar in ((64, 1.2, 1.6), (128, 1.1, 1.4)):
            torch.manual_seed(1)
            q, k, v = (torch.randn(1, 4, 4096, head_dim, requires_grad=True) for _ in range(3))
            do = torch.randn(q.shape)
            compare(f"dense forward + backward, D{head_dim}, {threads} threads",
                    lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v), (q, k, v), do),
                    lambda: torch.autograd.grad(tessera.torch.sparse_attention(q, k, v), (q, k, v), do), options.samples, dense_bar, clock)
            selection = tessera.random(heads=4, seq_q=4096, q_block=128, k_block=128, density=0.125, seed=1)
            block_mask, kernel_options = tessera.torch.to_flex(selection, "cpu")
            torch._dynamo.reset()
            compiled = torch.compile(flex_attention)
            with torch.no_grad():
                plain = [x.detach() for x in (q, k, v)]
                flex = lambda: compiled(*plain, block_mask=block_mask, kernel_options=kernel_options)
                ours = lambda: tessera.torch.sparse_attention(*plain, selection)
                assert torch.allclose(flex(), ours(), atol=1e-4)
                compare(f"density 0.125 forward against FlexAttention, D{head_dim}, {threads} threads", flex, ours,
                        3 * options.samples, sparse_bar, clock)


def each(call, samples):
    """Microseconds of CPU time of a call: the median of the means of 20 calls, over the quickest half of many rounds."""
    def round_of_20():
        began = time.process_time()
        for _ in range(20):
            call()
        return (time.process_time() - began) / 20 * 1e6
    times = sorted(round_of_20() for _ in range(20 * samples))
    return statistics.median(times[:len(times) // 2])


def bars_calls(options):
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 1, 16, 16) for _ in range(3))
    operator, scale = torch.ops.tessera.attend, 0.25
    with torch.no_grad():
        report("operator on tiny tensors, no grad", each(lambda: operator(q, k, v, None, scale, 0), options.samples), 30, "us", False)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    do = torch.ones(q.shape)
    both = each(lambda: torch.autograd.grad(operator(q, k, v, None, scale, 0)[0], (q, k, v), do), options.samples)
    report("operator on tiny tensors, forward + backward", both, 160, "us", False)


def bars_plan(options):
    weights = np.random.default_rng(0).integers(1, 1000, 40)
    for method, bar in (("refined", 200), ("fractional", 100)):
        report(f"plan of 40 weights on 8 ranks, {method}", each(lambda: tessera.plan(weights, 8, method=method), options.samples), bar, "us", False)


def bars_import(options):
    text = ("import time; a, b = time.perf_counter(), time.process_time(); import numpy; c, d = time.perf_counter(), time.process_time();"
            "import tessera; e, f = time.perf_counter(), time.process_time(); print(c - a, d - b, e - c, f - d)")
    rows = [[1e3 * float(x) for x in subprocess.run([sys.executable, "-c", text], check=True, stdout=subprocess.PIPE).stdout.split()]
            for _ in range(options.samples)]
    numpy_wall, numpy_cpu, wall, cpu = map(min, zip(*rows))
    report("import tessera beyond NumPy", wall, 50, f"ms (CPU time {cpu:.1f}; NumPy itself {numpy_wall:.1f}, {numpy_cpu:.1f})", False)


def snake(cost, ranks):
    """xDiT's order: by falling cost, forth and back over the ranks."""
    order = np.argsort(-cost, kind="stable")
    place = np.arange(len(cost))
    column = np.where(place // ranks % 2 == 0, place % ranks, ranks - 1 - place % ranks)
    return order[np.argsort(column, kind="stable")]


def read_costs(path):
    """{(step, layer): (heads)} of a density CSV."""
    rows = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["step"], row["layer"]), []).append(float(row["density"]))
    return {key: np.array(values) for key, values in rows.items()}


def bars_order(options):
    paths = sorted(glob.glob(os.path.join(options.profiles, "*.csv"))) if options.profiles else []
    if not paths:
        print("order: skipped, --profiles names no folder with density CSV files")
    for path in paths:
        costs = read_costs(path)
        for ranks in (2, 4, 8):
            ours, theirs = [], []
            for cost in costs.values():
                if len(cost) % ranks == 0:
                    for list_of, perm in ((ours, tessera.torch.compute_perm(torch.from_numpy(cost), ranks).numpy()), (theirs, snake(cost, ranks))):
                        list_of.append(cost[perm].reshape(ranks, -1).sum(1).max() * ranks / cost.sum())
            if not ours:
                continue
            worse = sum(a > b * (1 + 1e-8) for a, b in zip(ours, theirs))
            name = f"{os.path.basename(path)}, {ranks} ranks, {len(ours)} layers"
            report(f"order of heads, {name}: layers worse than the snake", worse, 0, "", False)
            if "14b" in path and ranks == 8:
                report(f"order of heads, {name}: mean (snake {np.mean(theirs):.3f})", float(np.mean(ours)), 1.02, "", False)


def main():
    runs = {"attention": bars_attention, "calls": bars_calls, "plan": bars_plan, "import": bars_import, "order": bars_order}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=7, help="of each side (default 7)")
    parser.add_argument("--only", default=",".join(runs), help="which to run, separated by commas (default: all)")
    parser.add_argument("--threads", default="1,2", help="of attention, separated by commas (default 1,2)")
    parser.add_argument("--cpu", action="store_true", help="compare CPU time: for machines that are not idle")
    parser.add_argument("--profiles", metavar="FOLDER", help="density CSV files for the order of heads")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}, tessera {tessera.__version__}")
    for name in options.only.split(","):
        runs[name](options)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


main()
