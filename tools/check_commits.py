#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_commits.py - commit messages have the form `area: imperative summary`.

    check_commits.py FILE             the message in FILE, as git's commit-msg hook passes it
    check_commits.py --range A..B     the commits of a range, merges left out

The subject: an area in lower case (`comm`, `cli, docs`, `plan/price`), a colon and a space, a verb in
the imperative, at most 60 characters in all, no period at the end. A body begins after an empty
line. Subjects that git writes itself pass: `Merge ...`, `Revert "..."`, `fixup! ...`, `squash! ...`.

The imperative is recognised by what it is not: an article or a pronoun, a word in -ing, -ed or -s.
The verbs of VERBS have such an ending and are imperatives nevertheless.
"""
import re
import subprocess
import sys

import tree

LONGEST = 60
AREA = re.compile(r"([a-z0-9][\w./*-]*(?:, ?[a-z0-9][\w./*-]*)*): (.*)")
WRITTEN_BY_GIT = re.compile(r'Merge |Revert "|(fixup|squash|amend)! ')
NO_VERB = set("a an the what who which how when where why each every no all both some any many much more "
              "one two three it its they their this that these those of in on at for from with by to as "
              "new now only".split())
VERBS = set("access address alias bias bypass compress cross discuss express focus guess miss pass press "
            "process progress suppress bring ring string embed exceed feed need seed shed speed".split())


def imperative(word):
    return word in VERBS or not (word in NO_VERB or word.endswith(("ing", "ed", "s")))


def problems_of(message):
    """What is wrong with one message, as sentences."""
    # git removes these lines from what is committed; below the scissors is the diff of `commit -v`.
    message = message.partition("\n# ------------------------ >8 ------------------------")[0]
    lines = [line.rstrip() for line in message.split("\n") if not line.startswith("#")]
    while lines and not lines[0]:
        lines.pop(0)
    subject = lines[0] if lines else ""
    if WRITTEN_BY_GIT.match(subject):
        return
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters, must have at most {LONGEST}"
    if subject.endswith("."):
        yield "the subject ends with a period"
    if len(lines) > 1 and lines[1]:
        yield "the second line is not empty"
    match = AREA.fullmatch(subject)
    if not match:
        yield "the subject does not begin with an area in lower case, a colon and a space"
        return
    verb = re.match(r"[\w-]*", match.group(2)).group()
    if not verb.islower() or not imperative(verb):
        yield f'"{verb}" is no verb in the imperative; begin as in "fix", "add", "rename"'


def git(root, *arguments):
    result = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"check_commits: git {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def messages(root, commits):
    """(name, message) of each commit of a range that is no merge."""
    for commit in git(root, "rev-list", "--no-merges", "--reverse", commits).split():
        yield commit[:10], git(root, "show", "-s", "--format=%B", commit)


def main():
    parser = tree.arguments(__doc__.split("\n")[0])
    parser.add_argument("--range", dest="commits", metavar="A..B")
    parser.add_argument("file", nargs="?", metavar="FILE")
    args = parser.parse_args()
    if bool(args.file) == bool(args.commits):
        parser.error("give a FILE or --range")
    if args.file:
        with open(args.file, encoding="utf-8", errors="replace") as file:
            checked = [("message", file.read())]
    else:
        checked = list(messages(args.root, args.commits))
    problems = [f"{name}: {problem}\n    {message.strip().splitlines()[0] if message.strip() else ''}"
                for name, message in checked for problem in problems_of(message)]
    if problems or args.commits:
        tree.verdict("check_commits", problems, f"{len(checked)} commits")


if __name__ == "__main__":
    main()
