#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - runs the commands of a tutorial and compares what they print with the page.

    run.py [--tessera BIN] [--accept] PAGE...

Blocks that begin with ```console are run: lines "$ COMMAND" in order, in one empty folder that has the
repository's share/, with the output between them as the page shows it. A line "..." stands for any
lines. In a block ```console varies, and in times of planning everywhere, numbers are not compared, nor units of
time; lines of progress, one for each ten seconds, are left out.
Commands of other blocks are not run. --accept writes the output into the page where it has no "...".
A page that this build cannot run, because it lacks a part that the page names in a comment
"<!-- needs: oneDNN libpng -->", is skipped with code 77.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BLOCK = re.compile(r"^```console(?P<varies> varies)?\n(?P<body>.*?)^```$", re.M | re.S)
TIMES = re.compile(r"planned in [\d.]+ us")
NUMBER = re.compile(r"\d[\d.e+]*( (ms|s|min|h)\b)?")
PROGRESS = re.compile(r"tessera \w+: step \d+/\d+ ")


def commands_of(body):
    """[(command, expected lines)] of a block."""
    found = []
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            found.append((command, []))
        else:
            found[-1][1].append(line)
    return found


def plain(line, varies):
    line = TIMES.sub("planned in N us", line)
    return " ".join(NUMBER.sub("N", line).split()) if varies else line.rstrip()


def agree(expected, lines):
    """Whether the lines follow the expected ones, in which "..." is any number of lines."""
    if not expected:
        return not lines
    if expected[0].strip() == "...":
        return any(agree(expected[1:], lines[i:]) for i in range(len(lines) + 1))
    return bool(lines) and expected[0] == lines[0] and agree(expected[1:], lines[1:])


def run_page(page, options):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    needs = re.search(r"<!-- needs: (.*?) -->", text)
    if needs:
        has = subprocess.run([options.tessera, "info"], capture_output=True, text=True).stdout
        lacking = [part for part in needs.group(1).split() if not re.search(rf"^  {part}", has, re.M)]
        if lacking:
            print(f"{page}: skipped, this build lacks {', '.join(lacking)}")
            return 77
    bad = 0
    with tempfile.TemporaryDirectory(prefix="tessera-tutorial-") as folder:
        os.symlink(os.path.join(ROOT, "share"), os.path.join(folder, "share"))
        os.symlink(os.path.abspath(options.tessera), os.path.join(folder, "tessera"))
        environment = {**os.environ, "PATH": folder + os.pathsep + os.environ["PATH"], "LC_ALL": "C",
                       "XDG_CACHE_HOME": os.path.join(folder, "cache")}

        def check(match):
            nonlocal bad
            varies, shown = bool(match.group("varies")), []
            for command, expected in commands_of(match.group("body")):
                result = subprocess.run(command, shell=True, cwd=folder, env=environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                lines = [line.rstrip() for line in result.stdout.splitlines() if not PROGRESS.match(line)]
                same = agree([plain(line, varies) for line in expected], [plain(line, varies) for line in lines])
                if not same or result.returncode:
                    bad += 1
                    print(f"{page}: $ {command}\n-- the page has\n" + "\n".join(expected) +
                          f"\n-- printed, exit {result.returncode}\n" + "\n".join(lines))
                shown += ["$ " + command, *(expected if same or "..." in expected else lines)]
            return f"```console{match.group('varies') or ''}\n" + "\n".join(shown) + "\n```"

        accepted = BLOCK.sub(check, text)
    if options.accept and accepted != text:
        with open(page, "w", encoding="utf-8") as file:
            file.write(accepted)
    blocks = len(BLOCK.findall(text))
    print(f"{page}: {blocks} blocks, {bad} commands differ")
    return 1 if bad or not blocks else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "release", "bin", "tessera"))
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("pages", nargs="+")
    options = parser.parse_args()
    return max(run_page(page, options) for page in options.pages)


sys.exit(main())
