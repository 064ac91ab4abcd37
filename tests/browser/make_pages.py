#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_pages.py - makes one page of each kind with the command, and has pages.py open them.

    make_pages.py --tessera PATH [--shot FOLDER]

The masks have heads of windows of different widths, so that the page of a plan shows something to
balance. The training run is the smallest there is.
"""
import argparse
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def write_masks(path, layers=3, heads=6, blocks=48):
    data = bytes(abs(q - k) <= 2 + 5 * ((head + layer) % heads)
                 for layer in range(layers) for head in range(heads) for q in range(blocks) for k in range(blocks))
    head = repr({"descr": "|b1", "fortran_order": False, "shape": (layers, heads, blocks, blocks)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)


def write_profile(path, steps=3, layers=5, heads=7):
    rows = [f"{step},{layer},{head},{0.05 + 0.9 * ((3 * head + layer + step) % heads) / heads:.3f}"
            for step in range(steps) for layer in range(layers) for head in range(heads)]
    path.write_text("\n".join(["step,layer,head,density", *rows, ""]))


def has_train(tessera):
    return subprocess.run([tessera, "train", "--help"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--shot")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tessera-pages-") as folder:
        here = pathlib.Path(folder)

        def tessera(*arguments):
            subprocess.run([options.tessera, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

        write_masks(here / "masks.npy")
        write_profile(here / "profile.csv")
        plans = {"ring": ("--mask", here / "masks.npy", "--ranks", 4, "--ulysses", 2, "--ring", 2),
                 "fractional": ("--mask", here / "masks.npy", "--ranks", 5, "--method", "fractional"),
                 "profile": ("--density", here / "profile.csv", "--ranks", 16, "--cluster", "h100")}
        for name, arguments in plans.items():
            tessera("plan", *arguments, "--html", here / f"{name}.html")
        pages = [here / f"{name}.html" for name in plans]
        if has_train(options.tessera):
            tessera("train", "--preset", "tiny", "--data", "shapes", "--steps", 6, "--out", here / "run", "--quiet",
                    "--validate-every", 3, "--sample-every", 3, "--sample-steps", 2)
            tessera("report", here / "run", "-o", here / "run.html")
            pages.append(here / "run.html")
        shot = ["--shot", options.shot] if options.shot else []
        return subprocess.run([sys.executable, HERE / "pages.py", *shot, *pages]).returncode


if __name__ == "__main__":
    sys.exit(main())
