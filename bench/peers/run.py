#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - Tessera's attention beside PyTorch, FlexAttention and ONNX Runtime, in one run.

    bench/peers/run.py                                   the standard shapes, one thread and two
    bench/peers/run.py --shape heads=8,dim=128,tokens=8192 --threads 1 --json result.json

Makes a virtual environment in build/ on the first call and installs torch, numpy and cffi from PyPI into it, and onnxruntime
and onnx where ONNX Runtime runs; nothing else needs them. The plain torch wheel brings gigabytes of CUDA
libraries; PIP_EXTRA_INDEX_URL with PyTorch's index of CPU wheels makes pip take the small one.
Then measures in a process of its own for each number of threads and each precision (measure.py says how). Run it on an
otherwise idle machine. Where PyTorch's products in bf16 end the process (SIGILL where the hypervisor hides AMX's palette), the
table says so; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment avoids that at a price.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

from environment import environment

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGES, ONNX = ["torch", "numpy", "cffi"], ["onnxruntime", "onnx"]
SHAPES = ["heads=4,dim=64,tokens=4096", "heads=4,dim=128,tokens=4096",
          "heads=1,dim=64,tokens=16384", "heads=1,dim=128,tokens=16384"]


def measure(python, options, threads, precision, peers):
    """The results of measure.py with so many threads on both sides; None for peers of bf16 that ended the process."""
    count = str(threads)
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        command = [python, os.path.join(HERE, "measure.py"), "--threads", count, "--samples", str(options.samples),
                   "--peers", ",".join(peers), "--precision", precision, "--out", out.name, *options.shape]
        done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count,
                                                         "PYTHONPATH": options.package})
        if done.returncode < 0 and precision == "bf16":
            print(f"{', '.join(peers)} with {count} threads: ended by {signal.Signals(-done.returncode).name}")
            return None
        done.check_returncode()
        return json.load(out)


def measure_all(python, options):
    peers = options.peers.split(",")
    parts = {"fp32": [name for name in peers if not name.endswith("_bf16")],
             "bf16": [name for name in peers if name.endswith("_bf16")]}
    runs = [measure(python, options, int(n), precision, names)
            for n in options.threads.split(",") for precision, names in parts.items() if names]
    return [run for run in runs if run]


def report(results):
    for part in results["runs"]:
        machine = part["machine"]
        print(f"\n{machine['cpu']}, {machine['isa']}, {part['threads']} threads, {part['precision']}, "
              f"peak {part['peak_gflops']:.0f} GFLOP/s; " +
              ", ".join(f"{name} {version}" for name, version in machine["versions"].items()))
        print(f"{'shape':34} {'pass':8} {'density':>7} {'peer':12} {'peer GF/s':>9} {'ours':>6} {'of peak':>7}"
              f" {'median':>7} {'best':>6} {'apart':>8} {'samples':>8}")
        for row in part["results"]:
            if "skipped" in row:
                print(f"{row['shape']:34} {row['pass']:8} {row['density']:7.3f} {row['peer']:12} {row['skipped']}")
                continue
            print(f"{row['shape']:34} {row['pass']:8} {row['density']:7.3f} {row['peer']:12}"
                  f" {row['peer_gflops']:9.1f} {row['ours_gflops']:6.1f} {row['ours_share_of_peak']:7.3f}"
                  f" {row['ratio_median']:6.2f}x {row['ratio_best']:5.2f}x {row['max_difference']:8.1e}"
                  f" {row['kept']:3d}/{row['taken']:<3d}{' disturbed' if row['disturbed'] else ''}")
    print("\nRatios are peer's time over ours, of medians and of best samples; GFLOP/s are of the medians.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", metavar="TEXT", help="heads=N,dim=N,tokens=N; may be repeated")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, separated by commas (default 1,2)")
    parser.add_argument("--peers", default="sdpa,flex,onnxruntime,sdpa_bf16", help="which to run (default: all four)")
    parser.add_argument("--samples", type=int, default=7, help="undisturbed samples of each side (default 7)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--package", default=os.path.join(ROOT, "build", "release", "python"),
                        help="the folder of the Python package (default build/release/python)")
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "peers-venv"))
    options = parser.parse_args()
    options.shape = options.shape or SHAPES
    if not os.path.exists(os.path.join(options.package, "tessera", "libtessera.so")):
        sys.exit(f"{options.package}: has no package tessera; build the preset release first")
    python = environment(options.venv, PACKAGES + (ONNX if "onnxruntime" in options.peers.split(",") else []))
    results = {"schema": 1, "runs": measure_all(python, options)}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
            file.write("\n")
    report(results)


main()
