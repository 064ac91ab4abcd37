#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sweep.py - `tessera sweep`: its runs are those of `tessera train`, also after signals and a killed run.

    sweep.py --tessera build/release/bin/tessera [--steps 100]

A sweep of three kinds and two seeds is made whole. The dense arm of one without dsv must have the
bits of a dense run without trunk. Smaller ones are interrupted by SIGINT, lose a run to SIGKILL, or die themselves by
SIGKILL; the same command again must end with the bits of the whole one. Exit 77: this build cannot train.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PARSER = argparse.ArgumentParser(description=__doc__.split("\n")[0])
PARSER.add_argument("--tessera", type=pathlib.Path, required=True)
PARSER.add_argument("--steps", type=int, default=100, help="of a run, more than 10; for builds that take seconds a step")
ARGS, REST = PARSER.parse_known_args()
STEPS = ARGS.steps

RUN = ["--preset", "tiny", "--frames", "4", "--height", "16", "--width", "16", "--batch", "2", "--warmup", "2",
       "--steps", f"{STEPS}", "--validate-every", f"{STEPS // 2}", "--checkpoint-every", f"{STEPS // 5}",
       "--validate-clips", "1"]
SPARSE = ["--density", "0.25", "--dispatch", "sparse", "--cube", "2x2x2"]
KINDS = ["--attention", "dense,dsv,window", "--seeds", "2", "--trunk", "10"]
FEW = ["--attention", "dense,dsv", "--seeds", "1", "--trunk", "10"]  # of sweeps that are stopped
ARMS = [f"{kind}-{seed}" for seed in range(2) for kind in ("dense", "dsv", "window")]
MODEL = f"checkpoints/step-{STEPS:06}/diffusion_pytorch_model.safetensors"


class Sweep(unittest.TestCase):
    tessera = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tessera-sweep-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.env = {**os.environ, "LC_ALL": "C", "XDG_CACHE_HOME": str(cls.root / "cache"), "TESS_THREADS": "1"}
        cls.whole = cls.command("sweep", *KINDS, *RUN, *SPARSE, "--out", "whole")
        assert cls.whole.returncode == 0, cls.whole.stderr

    @classmethod
    def command(cls, *words):
        return subprocess.run([cls.tessera, *words], cwd=cls.root, env=cls.env, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=900)

    def begin(self, out):
        """A sweep that runs, when its first arm has begun; and the process of that arm."""
        process = subprocess.Popen([self.tessera, "sweep", *FEW, *RUN, *SPARSE, "--out", out], cwd=self.root,
                                   env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        arm = self.root / out / "dense-0/metrics.jsonl"
        while process.poll() is None and not (arm.exists() and arm.stat().st_size):
            time.sleep(0.005)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return process, [int(child) for child in children]

    def same(self, out):
        for arm in ("dense-0", "dsv-0"):
            self.assertEqual((self.root / out / arm / MODEL).read_bytes(), (self.root / "whole" / arm / MODEL).read_bytes(), arm)
            steps = [json.loads(line)["step"] for line in (self.root / out / arm / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual(steps, list(range(11, STEPS + 1)), arm)

    def finish(self, out):
        done = self.command("sweep", *FEW, *RUN, *SPARSE, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.same(out)

    def test_every_run_is_there_and_compared(self):
        names = {p.name for p in (self.root / "whole").iterdir()}
        runs = ARMS + ["trunk-0", "trunk-1"]
        self.assertEqual(names, {*runs, *(f"{run}.log" for run in runs), "sweep.json", "compare.html"})
        self.assertIn("6 runs in 3 arms", self.whole.stdout)
        self.assertRegex(self.whole.stdout, rf"at step {STEPS}\n  dense .* baseline\n  dsv .*\n  window ")
        self.assertEqual([line for line in self.whole.stdout.splitlines() if len(line) > 80], [])
        self.assertTrue((self.root / "whole/compare.html").stat().st_size > 10000)
        density = [json.loads(line)["density"] for line in (self.root / "whole/window-0/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(set(density), {0.25})

    def test_a_dense_arm_is_a_dense_run(self):
        for words in (["train", "--seed", "1", "--out", "alone"],
                      ["sweep", "--attention", "dense", "--seed", "1", "--seeds", "1", "--out", "dense"]):
            done = self.command(*words, *RUN, "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.root / "alone" / MODEL).read_bytes(), (self.root / "dense/dense-1" / MODEL).read_bytes())

    def test_again_makes_nothing(self):
        done = self.command("sweep", *KINDS, *RUN, *SPARSE, "--out", "whole")
        self.assertEqual((done.returncode, done.stdout), (0, self.whole.stdout))
        self.assertEqual([line.split(": ")[-1] for line in done.stderr.splitlines()], ["complete"] * 8)

    def test_ctrl_c_stops_the_run_and_the_same_command_goes_on(self):
        process, children = self.begin("stopped")
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("interrupted by a signal in dense-0; the same command goes on", errors)
        for child in children:
            self.assertFalse(pathlib.Path(f"/proc/{child}").exists())
        self.assertTrue(list((self.root / "stopped/dense-0/checkpoints").glob("step-*")))
        self.finish("stopped")

    def test_a_killed_run_fails_alone(self):
        process, children = self.begin("killed")
        self.assertEqual(len(children), 1)
        os.kill(children[0], signal.SIGKILL)
        out, errors = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("1 of 3 runs failed, first dense-0: ended by signal 9", errors)
        self.assertIn("1 run in 1 arm", out)
        self.finish("killed")

    def test_a_killed_sweep_takes_its_run_with_it(self):
        process, children = self.begin("dead")
        process.kill()
        process.communicate()
        end = time.time() + 30
        while time.time() < end and any(pathlib.Path(f"/proc/{child}/exe").exists() for child in children):
            time.sleep(0.02)
        self.assertFalse(any(pathlib.Path(f"/proc/{child}/exe").exists() for child in children))
        self.finish("dead")

    def test_without_a_trunk(self):
        done = self.command("sweep", "--attention", "dense,dsv", "--seeds", "1", "--seed", "4", "--trunk", "0", *RUN,
                            "--out", "plain", "--dry-run")
        self.assertEqual(done.stdout.splitlines(),
                         [" ".join(["tessera train", *RUN, f"--attention={kind}", "--seed=4", f"--out=plain/{kind}-4"])
                          for kind in ("dense", "dsv")])

    def refused(self, sentence, *words):
        done = self.command("sweep", *words)
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]), (2, f"tessera sweep: {sentence}"))

    def test_wrong_options_are_refused(self):
        self.refused("--out is missing, must be the folder of the sweep", *KINDS)
        self.refused("--attention is missing, must be kinds such as dense,dsv,window", "--out", "no")
        self.refused('--attention is "dense,fast", must be kinds with commas between: dense, dsv, oracle, pooled, search, '
                     "window, random or own", "--attention", "dense,fast", "--out", "no")
        self.refused("--attention has dsv twice, must have each kind once", "--attention", "dsv,dense,dsv", "--out", "no")
        self.refused(f"--trunk is {STEPS}, must be less than --steps, {STEPS}", *KINDS, *RUN, "--trunk", f"{STEPS}", "--out", "no")
        self.refused("--resume is no option of sweep: the same command again goes on", *KINDS, "--resume", "--out", "no")
        self.refused("--until is no option of sweep", *KINDS, "--until", "3", "--out", "no")
        self.refused('--steps is "0", must be an integer 1..1000000000, in steps', *KINDS, "--steps", "0", "--out", "no")
        self.refused("--stesp is no option, did you mean --steps?", *KINDS, "--stesp", "9", "--out", "no")
        self.refused("whole/sweep.json has other options of train, a trunk or --init: must be the same, or --out "
                     "another folder", *KINDS, *RUN, "--out", "whole")
        self.assertFalse((self.root / "no").exists())

    def test_what_train_refuses_ends_the_sweep(self):
        done = self.command("sweep", *KINDS, *RUN, "--attention", "dsv", "--rank", "12", "--out", "bad")
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]),
                         (2, "tessera sweep: --rank is 12, must be a multiple of 8 up to 64: 8 or 16"))


if __name__ == "__main__":
    Sweep.tessera = ARGS.tessera.resolve()
    if "oneDNN" not in subprocess.run([Sweep.tessera, "info"], capture_output=True, text=True).stdout:
        print("this build has no oneDNN")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *REST])
