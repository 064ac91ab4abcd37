#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""signals.py - what signals do to a training run: a checkpoint, and no handler on a computing thread.

    signals.py --tessera build/release/bin/tessera [--case twice|late|masks]

twice: SIGTERM to the process and to its group at once, as batch systems send it, is one request.
late: a second signal after more than a second ends a run whose step takes long.
masks: the signals that stop a run have no handler, and all threads but one have them blocked.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SMALL = ["--preset", "tiny", "--frames", "2", "--height", "16", "--width", "16"]
LARGE = ["--preset", "tiny", "--frames", "32", "--height", "128", "--width", "128", "--optimiser", "adamw"]
STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP]


def start(args, root, options):
    """A run in a process group of its own, and its folder."""
    out = root / "run"
    command = [str(args.tessera), "train", *options, "--batch", "1", "--validate-every", "0", "--steps", "1000000",
               "--out", str(out), "-q", "-j", "2"]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True), out


def wait_for(process, condition, what):
    while not condition():
        if process.poll() is not None:
            sys.exit(f"ended with {process.returncode} before {what}: {process.stderr.read()}")
        time.sleep(0.02)


def steps(out):
    file = out / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def mask(text, name):
    return int(re.search(rf"^{name}:\s*([0-9a-f]+)$", text, re.M)[1], 16)


def twice(args, root):
    process, out = start(args, root, SMALL)
    wait_for(process, lambda: steps(out) >= 3, "step 3")
    os.kill(process.pid, signal.SIGTERM)
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while mask(status.read_text(), "ShdPnd"):
        pass  # the second must not be merged with the first while that is pending
    os.killpg(process.pid, signal.SIGTERM)
    error = process.communicate()[1]
    names = [p.name for p in (out / "checkpoints").glob("*")]
    if process.returncode != 130 or names != [f"step-{steps(out):06d}"] or "--resume goes on" not in error:
        sys.exit(f"exit {process.returncode}, {steps(out)} steps, checkpoints {names}: {error}")


def late(args, root):
    process, out = start(args, root, LARGE)
    wait_for(process, lambda: (out / "metrics.csv").exists(), "the first step")
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(1.2)
    if process.poll() is not None:
        sys.exit(f"ended with {process.returncode} after one signal: the step is too short for this test")
    begin = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    if process.returncode != -signal.SIGTERM or time.monotonic() - begin > 1:
        sys.exit(f"exit {process.returncode} {time.monotonic() - begin:.1f} s after the second signal")


def masks(args, root):
    process, out = start(args, root, SMALL)
    wait_for(process, lambda: steps(out) >= 3, "step 3")
    tasks = [p.read_text() for p in pathlib.Path(f"/proc/{process.pid}/task").glob("*/status")]
    want = sum(1 << number - 1 for number in STOPPING)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    handlers = [hex(mask(text, "SigCgt")) for text in tasks if mask(text, "SigCgt") & want]
    open_to = [hex(mask(text, "SigBlk")) for text in tasks if mask(text, "SigBlk") & want != want]
    if handlers or len(open_to) != 1 or len(tasks) < 3:
        sys.exit(f"{len(tasks)} threads, handlers {handlers}, open to signals {open_to}, must be one that waits")


def main():
    cases = {"twice": twice, "late": late, "masks": masks}
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--case", choices=cases, action="append")
    args = parser.parse_args()
    for case in args.case or cases:
        root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-signals-"))
        try:
            cases[case](args, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        print(f"{case}: right")


if __name__ == "__main__":
    main()
