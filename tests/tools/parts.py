#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""parts.py - scripts/test --full runs its parts, counts them, and resumes behind those that passed.

The script runs in a small repository whose parts are three: two that pass and one that fails while a
file of that name exists. Each writes its name into a log that git ignores.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
PARTS = """parts=(one two three)
ran() { echo "$1" >>build/ran; }
part_one() { ran one; passed=$((passed + 2)) skipped=$((skipped + 1)); }
part_two() { ran two; step two test ! -e broken && passed=$((passed + 1)); }
part_three() { ran three; passed=$((passed + 3)); }
"""


class Parts(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("scripts", "build"):
            (self.root / name).mkdir()
        shutil.copy(SCRIPTS / "test", self.root / "scripts")
        (self.root / "scripts/test-parts").write_text(PARTS)
        (self.root / "scripts/install-deps").write_text("#!/bin/sh\n")
        (self.root / "scripts/install-deps").chmod(0o755)
        (self.root / ".gitignore").write_text("/build/\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        subprocess.run(["git", "init", "-q"], cwd=self.root, env=self.env, check=True)

    def full(self, *arguments):
        """The parts that ran, the last line, and the exit code."""
        ran = self.root / "build/ran"
        ran.unlink(missing_ok=True)
        done = subprocess.run(["scripts/test", "--full", *arguments], cwd=self.root, env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        names = ran.read_text().split() if ran.exists() else []
        return names, done.stdout.splitlines()[-1], done.returncode

    def test_all_parts_run_unless_some_are_named(self):
        self.assertEqual(self.full(), (["one", "two", "three"], "6 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(self.full("three"), (["three"], "3 passed, 0 failed", 0))
        self.assertEqual(self.full("four")[::2], ([], 2))

    def test_resume_skips_parts_that_passed_for_the_same_files(self):
        (self.root / "broken").touch()
        self.assertEqual(self.full(), (["one", "two", "three"], "5 passed, 1 failed, 1 skipped", 1))
        self.assertEqual(self.full("--resume"), (["two"], "5 passed, 1 failed, 1 skipped", 1))
        (self.root / "broken").unlink()  # another state of the files: all parts run again
        self.assertEqual(self.full("--resume"), (["one", "two", "three"], "6 passed, 0 failed, 1 skipped", 0))
        self.assertEqual(self.full("--resume"), ([], "6 passed, 0 failed, 1 skipped", 0))
        (self.root / "new").touch()  # not committed, and part of the state
        self.assertEqual(self.full("--resume", "three"), (["three"], "3 passed, 0 failed", 0))
        self.assertEqual(self.full()[0], ["one", "two", "three"])


if __name__ == "__main__":
    if not shutil.which("git"):
        print("git is not installed")
        sys.exit(77)
    unittest.main()
