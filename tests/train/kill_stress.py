#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill_stress.py - runs that signals stop again and again end like one that was not stopped.

    kill_stress.py --tessera build/release/bin/tessera [--mpirun mpirun] [--term 6] [--kill 6] [--seed 1]

Runs on video files with validation and samples, on one rank, and with --mpirun on two ranks in every
second run. A run is stopped up to six times, at random moments: by SIGTERM, half of them followed by
a second one within a millisecond, or by SIGKILL; of two ranks a random one gets the signal. Then it
is resumed, until so many signals were sent in all. At the end every file of the run must be there
and no other one, and weights, optimiser state, samples and all numbers of the metrics that are no
times must be the same as in a run that was not stopped. A run that SIGTERM ended has a checkpoint of
its last step. An exit code or message of a crash is a failure.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEPS, CLIPS, MOST = 12, 4, 6
OPTIONS = ["--preset", "tiny", "--frames", "4", "--height", "16", "--width", "16", "--batch", "2",
           "--steps", str(STEPS), "--warmup", "3", "--checkpoint-every", "3", "--keep", "2",
           "--validate-every", "4", "--validate-clips", "2", "--sample-every", "6", "--sample-steps", "2",
           "--seed", "5", "--quiet", "-j", "1"]
TIMED = {"step_ms", "attention_ms", "linear_ms", "other_ms", "optimiser_ms", "data_ms", "tokens_per_s", "select_ms",
         "learn_ms", "profile_ms", "exchange_ms", "plan_ms"}
CRASH = re.compile(r"egmentation|signal 11|signal 6\b|Aborted|free\(\)|corrupt|malloc|Sanitizer|Assertion|stack smashing")


class Stress:
    def __init__(self, args, root):
        self.args, self.root, self.chance = args, root, random.Random(args.seed)
        self.left = {signal.SIGTERM: args.term, signal.SIGKILL: args.kill}
        self.sent = {(number, ranks): 0 for number in self.left for ranks in (1, 2)}
        self.slowest = 0.0
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def make_clips(self):
        about = subprocess.run([self.args.tessera, "info"], capture_output=True, text=True, check=True).stdout
        folder = self.root / "clips"
        folder.mkdir()
        for i in range(CLIPS):
            clip = folder / f"{i}.{'mp4' if 'FFmpeg' in about and i % 2 else 'y4m'}"
            subprocess.run([self.args.tessera, "data", "shapes", "--count", "1", "--first", str(i), "--frames", "8",
                            "--height", "16", "--width", "16", "-o", clip], check=True, stdout=subprocess.DEVNULL)
            clip.with_suffix(".txt").write_text(f"clip {i}\n")

    def start(self, out, ranks):
        """A run that begins or goes on."""
        resume = ["--resume"] if any(out.glob("checkpoints/step-*")) else []
        command = [self.args.tessera, "train", *OPTIONS, "--data", self.root / "clips", "--out", out, *resume]
        if ranks > 1:
            command = [self.args.mpirun, "-n", str(ranks), *command, "--cluster", "h100"]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True)

    def end(self, process, allowed):
        error = process.communicate(timeout=120)[1]
        if process.returncode not in allowed or CRASH.search(error):
            sys.exit(f"exit {process.returncode}: {error}")
        return process.returncode

    def stop(self, out, ranks, number, after):
        """Sends a signal after a time, if the run lasts so long."""
        process = self.start(out, ranks)
        time.sleep(after)
        pid = process.pid if ranks == 1 else self.rank_of(process)
        if pid is None or process.poll() is not None:
            return self.end(process, {0})
        self.left[number] -= 1
        self.sent[number, ranks] += 1
        begin = time.monotonic()
        for _ in range(1 if number == signal.SIGKILL else self.chance.randint(1, 2)):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break
            time.sleep(0.0005)
        # 143, or the signal itself: it came before the first step, or before the command was ready for it.
        code = self.end(process, {0, 130, 143, 15, -15} if number == signal.SIGTERM else {0, 137, 9, -9})
        if number == signal.SIGTERM:
            self.slowest = max(self.slowest, time.monotonic() - begin)
        return code

    def rank_of(self, process):
        """The process of a random rank; None: there is none yet, or no longer."""
        try:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        except OSError:
            children = []
        return int(self.chance.choice(children)) if len(children) > 1 else None

    def check_stopped(self, out, code):
        """What is called step-N is complete, and a run that was asked to stop has its last step."""
        names = {p.name for p in out.glob("checkpoints/step-*") if (p / "state.json").exists()}
        if names != {p.name for p in out.glob("checkpoints/step-*")}:
            sys.exit(f"{out}: an incomplete checkpoint among {names}")
        metrics = out / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if code == 130 and metrics.exists() else []
        if lines and f"step-{json.loads(lines[-1])['step']:06d}" not in names:
            sys.exit(f"{out}: stopped after {lines[-1]}, but has {names}")

    def result(self, out):
        """All files by name, of checkpoints those of the last; times and what contains times are left out."""
        older = sorted(p for p in (out / "checkpoints").glob("step-*"))[:-1]  # a stop may have made one of its own
        files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*"))
                 if p.is_file() and not any(folder in p.parents for folder in older)}
        files["older"] = len(older)
        with open(out / "metrics.csv", newline="", encoding="utf-8") as f:
            files["metrics.csv"] = [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(f)]
        files["metrics.jsonl"] = [{k: v for k, v in json.loads(line).items() if k not in TIMED}
                                  for line in (out / "metrics.jsonl").read_text().splitlines()]
        files.pop("commands.txt", None)  # has a line for each start
        if "plans.csv" in files:
            files["plans.csv"] = [line.split(b",")[:4] for line in files["plans.csv"].splitlines()]
        return files

    def whole(self, ranks):
        """A run that is not stopped: how long it takes, and what it leaves."""
        out = self.root / f"whole-{ranks}"
        begin = time.monotonic()
        self.end(self.start(out, ranks), {0})
        return time.monotonic() - begin, self.result(out)

    def run(self, i, ranks, length, want):
        out, code = self.root / f"run-{i}", None
        for _ in range(MOST):
            numbers = [n for n, left in self.left.items() if left > 0]
            if code == 0 or not numbers:
                break
            code = self.stop(out, ranks, self.chance.choice(numbers), 1.1 * length * self.chance.random())
            self.check_stopped(out, code)
        if code != 0:
            self.end(self.start(out, ranks), {0})
        got = self.result(out)
        different = sorted(k for k in want.keys() | got.keys() if want.get(k) != got.get(k))
        if different:
            shutil.copytree(out, "kill_stress_failed", dirs_exist_ok=True)
            sys.exit(f"run {i} on {ranks} ranks, seed {self.args.seed}: {', '.join(different)} differ: kill_stress_failed")
        shutil.rmtree(out)

    def all(self):
        self.make_clips()
        rank_counts = [1, 2] if self.args.mpirun else [1]
        whole = {ranks: self.whole(ranks) for ranks in rank_counts}
        i = 0
        while any(left > 0 for left in self.left.values()):
            ranks = rank_counts[i % len(rank_counts)]
            self.run(i, ranks, *whole[ranks])
            i += 1
        counts = ", ".join(f"{n} {number.name} on {ranks} rank{'s' * (ranks > 1)}"
                           for (number, ranks), n in self.sent.items() if n)
        print(f"{i} runs, {counts}: all end alike; stopped {self.slowest:.1f} s after SIGTERM at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--mpirun")
    parser.add_argument("--term", type=int, default=6)
    parser.add_argument("--kill", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-stress-"))
    try:
        Stress(parser.parse_args(), root).all()
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
