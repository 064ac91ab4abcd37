#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""predict_ranks.py - a training of two ranks, predicted from traces of its ranks, and measured.

    tools/predict_ranks.py --tessera build/release/bin/tessera --launcher "mpirun -n 2 --bind-to core"

Measures this machine as a cluster, traces both ranks at the same time without communication (or one
after the other: --trace-together 1), replays them together, trains with two ranks, and prints both
steps; data and context parallel, --repeat times each. The machine must be quiet: a played step is
timed once.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

RANKS = 2
JOBS = {"data parallel": ["--ranks-context", "1"], "context parallel": ["--ranks-context", str(RANKS)]}
MODEL = "--preset tiny --frames 16 --height 64 --width 64 --batch 2 -j 1 -q".split()


def run(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def predict(tessera, job, cluster, folder, together):
    """ms of the step of both ranks, traced without each other."""
    run([tessera, "train", *MODEL, *job, "--cluster", cluster, "--trace-ranks", str(RANKS), "--trace-rank", "all",
         "--trace-together", str(together), "--trace-out", folder])
    traces = [word for rank in range(RANKS) for word in ("--trace", f"{folder}/rank{rank}.json")]
    return json.loads(run([tessera, "simulate", *traces, "--cluster", cluster, "--json"]))["step_ms"]


def measure(tessera, launcher, job, cluster, folder, steps):
    """Median ms of a step under the launcher."""
    return json.loads(run([*launcher, tessera, "train", *MODEL, *job, "--cluster", cluster, "--steps", str(steps),
                           "--out", folder, "--json"]))["step_ms_median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", required=True, type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--launcher", default="mpirun -n 2 --bind-to core", type=shlex.split)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--trace-together", type=int, default=RANKS, choices=range(1, RANKS + 1))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = f"{folder}/here.json"
        run([*args.launcher, args.tessera, "cluster", "measure", "-j", "1", "-o", cluster])
        print("| job | predicted, ms | measured, ms | error, % |\n|---|---|---|---|")
        for name, job in JOBS.items():
            word = name.split()[0]
            predicted, measured = [], []
            for i in range(args.repeat):
                predicted.append(predict(args.tessera, job, cluster, f"{folder}/{word}{i}", args.trace_together))
                measured.append(measure(args.tessera, args.launcher, job, cluster, f"{folder}/{word}-run{i}", args.steps))
            p, m = statistics.median(predicted), statistics.median(measured)
            print(f"| {name} | {p:.1f} ({min(predicted):.1f}..{max(predicted):.1f}) | {m:.1f} "
                  f"({min(measured):.1f}..{max(measured):.1f}) | {100 * (p / m - 1):+.1f} |", flush=True)


if __name__ == "__main__":
    main()
