#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command.py - tessera gpu over the driver of tests, and without one.

    command.py EMULATED TESSERA      EMULATED: the command with that driver; TESSERA: the command itself
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

EMULATED, TESSERA = sys.argv[1:3]
CHECK = ["check", "--keys", "64", "--runs", "2"]
BENCH = ["bench", "--tokens", "96", "--heads", "1", "--dim", "64", "--group", "32", "--samples", "1", "--densities",
         "0.1,0.5"]


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_gpu(self, *words, driver="", program=EMULATED, code=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESS_")}
        env.update(FAKE_DRIVER=driver, XDG_CACHE_HOME=self.folder.name, LC_ALL="C")
        done = subprocess.run([program, "gpu", *words], env=env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for line in [] if "--json" in words else done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)
        return done

    def members(self, *words, **more):
        return json.loads(self.run_gpu(*words, "--json", **more).stdout)

    def test_info(self):
        text = self.run_gpu("info").stdout
        self.assertIn("emulation 0, compute capability 8.0", text)
        self.assertIn("not checked on this device", text)
        found = self.members("info")
        self.assertEqual((found["check"], found["why"], found["backend"]), ("not checked", None, "c"))
        self.assertEqual(found["device"]["name"], "emulation 0")
        self.assertEqual(self.members("info", "--device", "1")["device"]["name"], "emulation 1")

    def test_what_is_missing(self):
        for driver, words, sentence in (
                ("devices=0", (), "device is 0, the driver has 0"),
                ("", ("--device", "2"), "device is 2, the driver has 2"),
                ("version=10020", (), "the driver is of CUDA 10.2, must be 11.0 or later"),
                ("major=7", (), "emulation 0 has compute capability 7.0, must be 8.0 or later"),
                ("load=209", (), "the image has no code for compute capability 8.0")):
            found = self.members("info", *words, driver=driver, code=4)
            self.assertIn(sentence, found["why"])
            self.assertEqual((found["device"], found["backend"]), (None, "triton"))
            for action in ("check", "bench"):
                done = self.run_gpu(action, *words, driver=driver, code=4)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn("tessera gpu: " + sentence, done.stderr)

    def test_without_kernels_or_driver(self):
        """The command as it is built, on a machine of tests: no device, and perhaps no kernels."""
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has a GPU")
        found = self.members("info", program=TESSERA, code=4)
        self.assertRegex(found["why"], "no kernels|no driver|the driver")
        self.assertEqual(self.run_gpu("check", program=TESSERA, code=4).stderr.count("\n"), 1)

    def test_check_is_stored(self):
        found = self.members(*CHECK)
        self.assertEqual((found["outcome"], found["cases"], found["failed"]), ("passed", 46, 0))
        self.assertTrue(all(r["ok"] and r["same_bits"] and r["guarded"] for r in found["results"]))
        self.assertEqual(self.members("info")["check"], "passed")
        self.assertIn("passed on this device: 46 cases, with 64 keys, 2 runs each", self.run_gpu("info").stdout)
        self.assertEqual(self.members("info", "--device", "1")["check"], "not checked")
        self.assertEqual(self.members("info", driver="version=12080")["check"], "not checked")
        self.assertEqual(self.members("info", "--cache", "none")["check"], "not checked")
        self.assertNotIn("not checked", self.run_gpu(*BENCH).stderr + self.run_gpu(*BENCH).stdout)

    def test_check_that_fails(self):
        done = self.run_gpu(*CHECK, driver="spoil=2", code=3)
        self.assertIn("; bytes around an output were overwritten", " ".join(done.stdout.split()))
        self.assertIn("1 of the lists are wrong", done.stdout)
        self.assertEqual(self.members("info")["check"], "failed")
        done = self.run_gpu(*CHECK, driver="launch=719", code=4)
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", done.stderr)
        self.assertEqual(self.members("info")["check"], "failed")  # as it was

    def test_a_file_that_is_broken(self):
        self.members(*CHECK)
        folder = os.path.join(self.folder.name, "tessera")
        (name,) = os.listdir(folder)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write('{"format": 1}')
        self.assertIn('lacks "key"', self.run_gpu("info", code=1).stderr)
        self.members(*CHECK)
        self.assertEqual(self.members("info")["check"], "passed")

    def test_bench(self):
        found = self.members(*BENCH)
        self.assertEqual([x["density"] for x in found["densities"]], [0.1, 0.5])
        self.assertEqual((found["dense"]["density"], found["dense"]["from"], found["check"]),
                         (1.0, "these kernels", "not checked"))
        for x in found["densities"]:
            keys = round(96 * x["density"])
            self.assertAlmostEqual(x["forward_tflops"] * x["forward_ms"], 4 * 64 * 96 * keys * 1e-9, places=12)
            self.assertAlmostEqual(x["backward_tflops"] * x["backward_ms"], 10 * 64 * 96 * keys * 1e-9, places=12)
        text = self.run_gpu(*BENCH, "--dense-forward", "1e9", "--dense-backward", "1e9").stdout
        self.assertIn("sparse attention takes less than dense at all of these densities", text)
        text = self.run_gpu(*BENCH, "--dense-forward", "1e-6", "--dense-backward", "1e-6").stdout
        self.assertIn("sparse attention takes longer than dense at all of these densities", text)
        a, b = (sum(x[k] for k in ("select_ms", "forward_ms", "backward_ms")) for x in found["densities"])
        half = str((a + b) / 4)
        even = self.members(*BENCH, "--dense-forward", half, "--dense-backward", half)["break_even"]
        self.assertTrue(0.1 <= even <= 0.5 or even == 0, even)
        self.run_gpu(*BENCH, "--atomic", "--dtype", "fp16")

    def test_bad_input(self):
        for words, sentence in (
                (("--densities", "0.5,0.1"), "--densities is \"0.5,0.1\", must be 1..32 ascending numbers"),
                (("--densities", "0,0.1"), "must be 1..32 ascending numbers above 0"),
                (("--densities", "0.1,1.5"), "and at most 1"),
                (("--dense-forward", "3"), "--dense-forward and --dense-backward belong together"),
                (("--tokens", "0"), "--tokens is \"0\", must be an integer 1..")):
            self.assertIn(sentence, self.run_gpu("bench", *words, code=2).stderr)
        self.assertIn("unit is 3, must be a power of two", self.run_gpu(*BENCH, "--unit", "3", code=2).stderr)
        self.assertIn("head_dim is 96, must be 64 or 128", self.run_gpu(*BENCH, "--dim", "96", code=4).stderr)
        self.run_gpu("sing", code=2)
        for words, option, action in (
                (("info", "--tokens", "64"), "tokens", "bench"),
                (("check", "--tokens", "64"), "tokens", "bench"),
                (("check", "--dtype", "fp16"), "dtype", "bench"),
                (("check", "--atomic"), "atomic", "bench"),
                (("info", "--dense-forward", "3"), "dense-forward", "bench"),
                ((*BENCH, "--runs", "3"), "runs", "check")):
            self.assertIn(f"--{option} belongs to {action}, ACTION is {words[0]}", self.run_gpu(*words, code=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
