#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill.py - a run that is killed at a random moment and resumed ends like one that was not.

    kill.py --tessera build/release/bin/tessera [--kind dense|dsv] [--moments 20] [--seed 1]

The run is short and writes a checkpoint every few steps, so that many moments fall into the writing
of one. For each moment a run of its own is killed with SIGKILL, its folder is checked (whatever is
called step-N must be complete), and it is resumed with another number of threads. Every file of the
last checkpoint, and every number of the metrics that is no time, must be the same as in the run that
was not killed. A run of kind dsv becomes sparse on its way; its decisions must be the same too.
"""
import argparse
import csv
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

STEPS = 24
OPTIONS = ["--preset", "tiny", "--frames", "4", "--height", "16", "--width", "16", "--batch", "2",
           "--steps", str(STEPS), "--warmup", "3", "--checkpoint-every", "2", "--keep", "2",
           "--validate-every", "8", "--validate-clips", "2", "--seed", "5", "--quiet"]
KINDS = {"dense": [],
         "dsv": ["--attention", "dsv", "--density", "0.25", "--dispatch", "sparse", "--switch-recall", "0.01",
                 "--back-recall", "0.01", "--profile-every", "2", "--check-every", "2"]}
TIMES = {"step_ms", "attention_ms", "linear_ms", "other_ms", "optimiser_ms", "data_ms", "tokens_per_s",
         "select_ms", "learn_ms", "profile_ms"}


def command(args, out, threads, *more):
    return [str(args.tessera), "train", *OPTIONS, *KINDS[args.kind], "--out", str(out), "-j", str(threads), *more]


def last(out):
    """The files of the last checkpoint by name."""
    folder = out / "checkpoints" / f"step-{STEPS:06d}"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def metrics(out):
    """The numbers that are no times, and what was decided."""
    with open(out / "metrics.csv", newline="") as f:
        rows = [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(f)]
    return rows, [(out / name).read_text() for name in ("events.jsonl", "density.csv")
                  if (out / name).exists()]


def complete(out):
    """What is called step-N has its last file."""
    for folder in (out / "checkpoints").glob("step-*"):
        if not (folder / "state.json").exists():
            sys.exit(f"{folder} is not complete")


def killed(args, out, after):
    process = subprocess.Popen(command(args, out, 1), stdout=subprocess.DEVNULL)
    time.sleep(after)
    process.kill()
    return process.wait() != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--kind", choices=KINDS, default="dense")
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-kill-"))
    try:
        whole = root / "whole"
        begin = time.monotonic()
        subprocess.run(command(args, whole, 1), check=True, stdout=subprocess.DEVNULL)
        length = time.monotonic() - begin
        want, numbers, hits = last(whole), metrics(whole), 0
        if args.kind == "dsv" and '"switch"' not in numbers[1][0]:
            sys.exit("the run never became sparse")
        for i in range(args.moments):
            out = root / f"run-{i}"
            after = length * (i + chance.random()) / args.moments
            hits += killed(args, out, after)
            complete(out)
            resume = ["--resume"] if (out / "checkpoints").exists() else []  # killed before it began
            subprocess.run(command(args, out, 1 + i % 3, *resume), check=True,
                           stdout=subprocess.DEVNULL)
            got = last(out)
            different = sorted(k for k in want.keys() | got.keys() if want.get(k) != got.get(k))
            if different or metrics(out) != numbers:
                sys.exit(f"killed after {after:.3f} s: {', '.join(different) or 'metrics'} differ")
            shutil.rmtree(out)
        print(f"{args.moments} moments in {length:.1f} s, {hits} before the end: all runs end alike")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
