#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py - opens HTML pages in headless Chromium and checks that they drew themselves.

    pages.py [--chromium PATH] [--shot FOLDER] PAGE...

A page fails if its script noted an error, if a figure is empty or if it has none, or if it asks for
anything outside itself. --shot also keeps a picture of each page. Exits with 77 without Chromium.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77


def chromium(path, profile, *arguments):
    # As root the browser has no sandbox; /dev/shm is small in containers.
    command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
               f"--user-data-dir={profile}", "--virtual-time-budget=5000", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def complaints(page, document):
    text = page.read_text()
    for address in re.findall(r"""(?:src|href)=["'](?!data:|#)([^"']*)""", text):
        yield f"asks for {address}"
    error = re.search(r'<body[^>]*data-error="([^"]*)"', document)
    if error:
        yield f"script error: {error.group(1)}"
    wanted = len(re.findall("<figure", text))
    drawn = re.search(r'<body[^>]*data-figures="(\d+)"', document)
    if wanted == 0:
        yield "has no figure"
    elif not drawn or int(drawn.group(1)) != wanted:
        yield f"{drawn.group(1) if drawn else 'none'} of {wanted} figures are drawn"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    parser.add_argument("--shot", type=pathlib.Path)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    if not options.chromium:
        print("skipped: no chromium", file=sys.stderr)
        return SKIPPED
    bad = 0
    with tempfile.TemporaryDirectory(prefix="tessera-browser-") as profile:
        for page in options.pages:
            address = page.resolve().as_uri()
            found = list(complaints(page, chromium(options.chromium, profile, "--dump-dom", address).stdout))
            bad += bool(found)
            print(f"{page.name}: {'; '.join(found) or 'fine'}")
            if options.shot:
                os.makedirs(options.shot, exist_ok=True)
                chromium(options.chromium, profile, f"--screenshot={options.shot / page.stem}.png", "--window-size=1300,2400",
                         address)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
