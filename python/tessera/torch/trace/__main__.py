# SPDX-License-Identifier: Apache-2.0
"""__main__.py - python -m tessera.torch.trace: an unmodified script as one rank, or as several."""
import argparse
import sys

from . import _ranks
from ._error import TraceError
from ._kernels import CHOICES
from ._player import DEVICES
from ._script import trace_script


def options():
    parser = argparse.ArgumentParser(prog="python -m tessera.torch.trace", usage="%(prog)s [options] -- SCRIPT [ARGUMENTS]",
                                     description="Plays one rank of a PyTorch training script without the others and writes what "
                                     "one step computes, sends and holds, for tessera simulate --trace. docs/pytorch.md is the "
                                     "guide.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=int, help="the rank to play")
    which.add_argument("--ranks", help="several, one process each: all, corners (first and last of every group), or 0,5,7; "
                       "rank.json becomes rank5.json, and equal records are kept once; default: corners")
    parser.add_argument("--world-size", type=int, required=True, help="ranks of the job")
    parser.add_argument("--out", required=True, help="the trace file")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="cpu; meta: fake tensors, without memory; cuda: times")
    parser.add_argument("--kernels", choices=CHOICES, help="operators as a CPU composes them or as CUDA has them; default: cpu "
                        "with --device cpu, else cuda")
    parser.add_argument("--after", type=int, default=2, help="steps of the optimiser before the recorded one (2)")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main():
    parser = options()
    given = parser.parse_args()
    script = given.script[1:] if given.script[:1] == ["--"] else given.script
    if not script:
        parser.error("SCRIPT is missing: -- train.py ARGUMENTS")
    if given.after < 1:
        parser.error(f"--after is {given.after}, must be 1 or more")
    try:
        if given.rank is not None:
            summary = trace_script(script[0], script[1:], given.rank, given.world_size, given.out, given.after, given.device,
                                   given.strict, given.kernels)
            for warning in summary.warnings:
                print(f"warning: {warning}", file=sys.stderr)
            print(summary)
            return 0
        if given.world_size < 1:
            raise TraceError(f"--world-size is {given.world_size}, must be 1 or more")
        more = ["--device", given.device, "--after", str(given.after), *(["--strict"] if given.strict else []),
                *(["--kernels", given.kernels] if given.kernels else []), "--", *script]
        for path, ranks in _ranks.play(_ranks.listed(given.ranks, given.world_size), given.world_size, given.out, more):
            print(f"{path}: stands for rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}")
        return 0
    except TraceError as error:
        print(f"tessera.torch.trace: {str(error).replace('tessera.torch.trace: ', '')}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
