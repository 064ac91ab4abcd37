#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sparse.py - training with sparse attention: decisions are printed and stored, runs branch off.

    sparse.py --tessera build/release/bin/tessera

One run with DSV attention becomes sparse at step 4 of 5. Its log, its files and its decisions are
compared with what they must be; runs of other attention branch off its checkpoint of step 3; the run
is resumed; and options that do not go together are refused, each with its sentence. Exit 77: this build
cannot train.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SMALL = ["--preset", "tiny", "--frames", "4", "--height", "16", "--width", "16", "--batch", "2", "--warmup", "2",
         "--validate-clips", "1"]
DSV = ["--attention", "dsv", "--density", "0.25", "--dispatch", "sparse", "--cube", "2x2x2", "--switch", "step",
       "--switch-step", "3", "--back-recall", "0.01", "--profile-every", "2", "--check-every", "2", "--steps", "5",
       "--checkpoint-every", "3"]
DISPATCHED = [f"step 4: layer {i}: 2 of 2 heads sparse, density N" for i in range(2)]
LISTS = "step 4: lists of keys: saved for the backward pass in 2 layers, selected again in 0"


def began(numbers):
    return [f"step 4: layer {i} becomes sparse, by the rule of steps{numbers}" for i in range(2)]


class Run(unittest.TestCase):
    tessera = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tessera-sparse-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = pathlib.Path(cls.folder.name)
        cls.env = {**os.environ, "LC_ALL": "C", "XDG_CACHE_HOME": str(cls.root / "cache")}
        done = cls.train(*SMALL, *DSV, "--out", "dsv")
        assert done.returncode == 0, done.stderr
        cls.log = cls.sentences(done)

    @classmethod
    def train(cls, *options):
        return subprocess.run([str(cls.tessera), "train", *options], cwd=cls.root, env=cls.env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=300)

    @staticmethod
    def sentences(done):
        """The log, without the numbers that differ between instruction sets."""
        return [re.sub(r"(recall|predictors|density|wanted) [0-9.e-]+", r"\1 N", line.removeprefix("tessera train: "))
                for line in done.stderr.splitlines() if not re.match("[a-z]+ {5}", line)]

    def lines(self, path):
        return [json.loads(line) for line in (self.root / path).read_text().splitlines()]

    def value(self, path):
        return json.loads((self.root / path).read_text())

    def test_decisions_are_printed(self):
        self.assertEqual(self.log, began(": recall N, density N, loss of the predictors N") + DISPATCHED + [LISTS])

    def test_decisions_are_stored(self):
        events = [(e["step"], e.get("layer"), e["event"]) for e in self.lines("dsv/events.jsonl")]
        self.assertEqual(events, [(4, 0, "switch"), (4, 1, "switch"), (4, 0, "dispatch"), (4, 1, "dispatch"),
                                  (4, None, "lists")])
        steps = self.lines("dsv/metrics.jsonl")
        self.assertEqual([(s["density"], s["sparse_layers"]) for s in steps],
                         [(1, 0), (1, 0), (1, 0), (0.25, 2), (0.25, 2)])
        self.assertTrue(all(s["predictor_loss"] > 0 for s in steps))
        decisions = self.value("dsv/checkpoints/step-000005/decisions.json")
        self.assertEqual(list(decisions), ["format", "version", "layers", "heads", "cube_chosen", "break_even",
                                           "window", "predictor_loss", "calibration", "predictor_updates",
                                           "attention", "cubes", "decisions"])
        self.assertEqual(decisions["decisions"][0], {"stage": "sparse", "since": 4, "back": [0, 0],
                                                     "sparse": [[1, 1]] * 4, "keys": [[16, 16]] * 4})

    def test_files_of_a_run(self):
        settings = self.value("dsv/settings.json")
        self.assertEqual([settings[k] for k in ("attention", "density", "cube", "switch", "index-memory")],
                         ["dsv", 0.25, "2x2x2", "step", 0])
        density = (self.root / "dsv/density.csv").read_text().splitlines()[:3]
        self.assertEqual([line.split(",")[:3] for line in density],
                         [["step", "layer", "head"], ["1", "0", "0"], ["1", "0", "1"]])
        files = {"dsv": "checkpoints commands.txt density.csv events.jsonl metrics.csv metrics.jsonl settings.json",
                 "dsv/checkpoints/step-000005": "config.json decisions.json diffusion_pytorch_model.safetensors ema "
                                                "optimiser.safetensors predictor.safetensors settings.json state.json"}
        for folder, names in files.items():
            self.assertEqual(sorted(os.listdir(self.root / folder)), names.split())

    def branch(self, kind):
        done = self.train("--branch", "dsv/checkpoints/step-000003", "--attention", kind, "--out", kind)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.sentences(done), [(s["step"], s["density"]) for s in self.lines(f"{kind}/metrics.jsonl")]

    def test_dense_attention_branches_off(self):
        self.assertEqual(self.branch("dense"), ([], [(4, 1), (5, 1)]))

    def test_window_attention_branches_off(self):
        log = began(", density N") + ["step 4: queries attend to a window of 1x1x2 cubes: 0.25 of the keys, wanted N"]
        self.assertEqual(self.branch("window"), (log + DISPATCHED + [LISTS], [(4, 0.25), (5, 0.25)]))

    def test_search_branches_off(self):
        log = ["every step has other clips, so that search finds its keys anew, as oracle does"] + began(", density N")
        self.assertEqual(self.branch("search"), (log + DISPATCHED + [LISTS], [(4, 0.25), (5, 0.25)]))

    def test_resume_continues_and_refuses_another_attention(self):
        shutil.copytree(self.root / "dsv", self.root / "resumed")
        done = self.train("--out", "resumed", "--resume", "--steps", "6", "--json", "-q")
        result = json.loads(done.stdout)
        self.assertEqual((result["steps"], result["sparse_layers"], result["density"]), (6, 2, 0.25))
        self.refused(1, "resumed/checkpoints/step-000006: attention was dsv, must be resumed with it, not oracle",
                     "--out", "resumed", "--resume", "--attention", "oracle", "-q")

    def refused(self, code, sentence, *options):
        done = self.train(*options)
        usage = ["Try 'tessera train --help'."] if code == 2 else []
        self.assertEqual((done.returncode, self.sentences(done)), (code, [sentence] + usage))

    def test_wrong_options_are_refused(self):
        dsv = [*SMALL, "--attention", "dsv", "--out", "no"]
        self.refused(2, '--cube is "2x2", must be auto or sizes such as 2x4x4', *dsv, "--cube", "2x2")
        self.refused(2, '--density is "2", must be a number 0..1', *dsv, "--density", "2")
        self.refused(2, "--rank is 12, must be a multiple of 8 up to 64: 8 or 16", *dsv, "--rank", "12")
        self.refused(2, "--min-density is 0.5, must be at most --max-density, 0.25", *dsv, "--min-density", "0.5",
                     "--max-density", "0.25")
        self.refused(1, "missing.json: cannot open: No such file or directory", *dsv, "--dispatch", "missing.json")
        self.refused(2, "--init and --branch are both given, must be one of them", "--init", "dsv", "--branch", "dsv",
                     "--out", "no")
        self.refused(1, "missing: holds no complete checkpoint", "--branch", "missing", "--out", "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    args, rest = parser.parse_known_args()
    Run.tessera = args.tessera.resolve()
    if "oneDNN" not in subprocess.run([Run.tessera, "info"], capture_output=True, text=True).stdout:
        print("this build has no oneDNN")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])
