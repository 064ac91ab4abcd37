#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""commits.py - tools/check_commits.py and the commit-msg hook accept good messages, refuse bad ones."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
CHECK = os.path.join(ROOT, "tools", "check_commits.py")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_commits  # noqa: E402

GOOD = [
    "comm: rename gather to allgatherv",
    "cli, docs: print bytes in GiB\n\nThe values were GiB already.\n",
    "plan/price: pass the cluster as an argument",
    "tests: " + "x" * 53,
    "ci: fix it\n# a line that git removes.\n",
    "cli: fix it\n\n# ------------------------ >8 ------------------------\ndiff --git a/x. b/x.\n",
    'Revert "dist: what is not read is gone, and the sentence is long as well"',
    "fixup! comm: rename gather to allgatherv",
]
BAD = [
    ("tests: " + "x" * 54, "61 characters"),
    ("comm: rename gather.", "period"),
    ("rename gather to allgatherv", "area"),
    ("Comm: rename gather", "area"),
    ("comm:rename gather", "area"),
    ("", "area"),
    ("comm: renamed gather", '"renamed" is no verb'),
    ("comm: renames gather", '"renames" is no verb'),
    ("comm: renaming gather", '"renaming" is no verb'),
    ("comm: what is not read is gone", '"what" is no verb'),
    ("comm: Rename gather", '"Rename" is no verb'),
    ("comm: rename gather\nand sum", "second line"),
]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


class Commits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def git(self, *arguments):
        identity = [x for s in ("user.name=t", "user.email=t@example.org") for x in ("-c", s)]
        env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        return run("git", *identity, *arguments, cwd=self.folder, env=env)

    def test_good_messages_pass(self):
        for message in GOOD:
            self.assertEqual(list(check_commits.problems_of(message)), [], message)

    def test_bad_messages_fail_with_their_reason(self):
        for message, words in BAD:
            problems = list(check_commits.problems_of(message))
            self.assertEqual(len(problems), 1, message)
            self.assertIn(words, problems[0])

    def test_the_hook_refuses_a_commit_and_a_range_is_checked(self):
        self.assertEqual(self.git("init", "-q").returncode, 0)
        for name in ("tools/check_commits.py", "tools/tree.py", "scripts/hooks/commit-msg"):
            os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.folder, name))
        hook = ["-c", "core.hooksPath=scripts/hooks"]
        commit = ["commit", "-q", "--allow-empty", "-m"]
        self.assertEqual(self.git(*hook, *commit, "cli: add a command").returncode, 0)
        refused = self.git(*hook, *commit, "cli: a command")
        self.assertEqual(refused.returncode, 1)
        self.assertIn('"a" is no verb', refused.stdout + refused.stderr)
        self.git(*commit, "cli: the hook is off")
        one = run(CHECK, "--root", self.folder, "--range", "HEAD~1..HEAD")
        self.assertEqual(one.returncode, 1)
        self.assertIn("cli: the hook is off", one.stdout)
        self.assertEqual(run(CHECK, "--root", self.folder, "--range", "HEAD~1").returncode, 0)
        self.assertNotEqual(run(CHECK, "--root", self.folder, "--range", "none..HEAD").returncode, 0)


if __name__ == "__main__":
    if not shutil.which("git"):
        print("git is not installed")
        sys.exit(77)
    unittest.main()
