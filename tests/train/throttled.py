#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""throttled.py - a rank that becomes slow while a job runs: the clips of a step are planned anew.

    throttled.py --tessera build/release/bin/tessera --mpirun mpirun [--ranks 2] [--steps 60] [--numbers]

Trains on clips of several sizes. After a third of the steps the last rank gets half of its time: it
is stopped and continued (SIGSTOP, SIGCONT) every 10 ms, so that it computes slower and sends no sign
of it. The log must then say that clips are planned anew, with that rank slower than the others.

--numbers prints what a quiet machine with a core for each rank is to be judged by, and fails where
steps are no more even after the new plan: the slowest rank's time over the predicted one and over the
mean, before; the step after the new plan over the ideal one (the step before, times ranks / (ranks -
1/2)). Other jobs on the cores make all of them useless. tests/test_mixture_rates.c asks the same of times
that are computed in place of measured ones.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PERIOD = 0.01
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none",
               "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "ASAN_OPTIONS": "detect_leaks=0"}
RANK = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)\0")


def process_of(folder, rank):
    """The process of a rank of the job that works in a folder."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            found = RANK.search((entry / "environ").read_bytes() + b"\0")
            if found and int(found[1]) == rank and (entry / "cwd").resolve() == folder:
                return int(entry.name)
        except (OSError, ValueError):
            continue
    return None


def throttle(pid, end):
    """Half of the time of a process, until the end."""
    try:
        while not end.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD)
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD)
    except ProcessLookupError:
        pass


def steps_of(path):
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def run(args, folder):
    """(steps, the step after which the rank was slow, what was printed)"""
    command = [args.mpirun, "-n", str(args.ranks), args.tessera, "train", "--preset", "tiny", "--sizes", args.sizes,
               "--batch", str(args.batch), "--steps", str(args.steps), "--warmup", "3", "--validate-every", "0",
               "--checkpoint-every", "0", "--out", "run", "-j", "1", *args.more]
    metrics, log = folder / "run" / "metrics.jsonl", folder / "log"
    end, slow_from, thread = threading.Event(), None, None
    with open(log, "wb") as out:
        job = subprocess.Popen(command, env=ENVIRONMENT, cwd=folder, stdout=out, stderr=out)
        begun = time.monotonic()
        while job.poll() is None and time.monotonic() - begun < args.limit:
            done = len(steps_of(metrics))
            if slow_from is None and done >= args.steps // 3:
                slow_from = done
                thread = threading.Thread(target=throttle, args=(process_of(folder, args.ranks - 1), end))
                thread.start()
            time.sleep(0.05)
        if job.poll() is None:
            job.terminate()
        end.set()
        if thread:
            thread.join()
        code = job.wait()
    text = log.read_text()
    if code or slow_from is None:
        sys.exit(f"exit {code}\n{text}")
    return steps_of(metrics), slow_from, text


def numbers(steps, slow_from, planned, ranks):
    """What a quiet machine is to be judged by; planned: first steps of plans that know the slow rank."""
    if not planned or planned[0] - 1 == slow_from:
        sys.exit(f"the new plan came for step {planned[0] if planned else len(steps) + 1} of {len(steps)}, "
                 "before or after it there is none to compare: more --steps are needed")
    before = statistics.median(s["imbalance_measured"] for s in steps[slow_from:planned[0] - 1])
    after = statistics.median(s["imbalance_measured"] for s in steps[planned[-1] - 1:])
    even = [s for s in steps[8:slow_from] if s["passes_predicted_ms"]]
    step = statistics.median(s["step_ms"] for s in even)
    print(f"before: passes over predicted {statistics.median(s['passes_ms'] / s['passes_predicted_ms'] for s in even):.3f}"
          f", slowest over mean {statistics.median(s['imbalance_measured'] for s in even):.3f}, step {step:.1f} ms")
    late = statistics.median(s["step_ms"] for s in steps[planned[-1] - 1:])
    ideal = step * ranks / (ranks - 0.5)
    print(f"after: step {late:.1f} ms, ideal {ideal:.1f} ms, ratio {late / ideal:.3f}; "
          f"imbalance {before:.2f}, with the new plan {after:.2f}")
    if after >= before:
        sys.exit("the new plan is no more even")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--sizes", default="4x32x32:6,8x32x32:3,8x48x48")
    parser.add_argument("--limit", type=float, default=240)
    parser.add_argument("--numbers", action="store_true")
    parser.add_argument("more", nargs="*", help="options of train, behind --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        steps, slow_from, text = run(args, pathlib.Path(name).resolve())
    plans = [(int(step), [float(s) for s in speeds.split()])
             for step, speeds in re.findall(r"planned anew from step (\d+) on: .*; speeds of ranks ([\d. ]+)", text)]
    slow = [(step, speeds) for step, speeds in plans if step > slow_from + 1 and speeds[-1] < 0.8 * max(speeds)]
    if not slow:
        sys.exit(f"rank {args.ranks - 1} had half of its time from step {slow_from} on, and no plan says so:\n{text}")
    print(f"slow from step {slow_from}, planned anew for step {slow[0][0]}: speeds {slow[-1][1]}")
    if args.numbers:
        numbers(steps, slow_from, [step for step, _ in slow if step <= len(steps)], args.ranks)


if __name__ == "__main__":
    main()
