#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py - two stored results of `tessera bench --json`, side by side.

    bench/compare.py BASELINE.json NEW.json

Fractions of the measured peak are compared, because the peak follows the processor's clock. A row is
slower if its fraction is below the baseline's by more than the distance from the baseline's best to its
upper quartile, at least 2 %: the rule of `tessera bench --compare`. Exit code 3 if a row is slower,
1 if nothing can be compared.
"""
import json
import sys

SPREAD_LEAST = 0.02


def load(path):
    """The settings of a run, and its rows by (problem, name)."""
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    if result.get("command") != "bench" or "error" in result:
        sys.exit(f"compare.py: {path}: is no result of tessera bench --json")
    rows = {(run["problem"], row["name"]): row
            for run in result.get("problems", [result]) for row in run["results"]}
    return (result["isa"], result["threads"]), rows


def least(row):
    """The smallest fraction of the peak that the spread of a row allows."""
    return row["share_of_peak"] * row["seconds"] / max(row["seconds_high"], (1 + SPREAD_LEAST) * row["seconds"])


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: bench/compare.py BASELINE.json NEW.json")
    (before, old), (after, new) = load(sys.argv[1]), load(sys.argv[2])
    if before != after:
        sys.exit(f"compare.py: {sys.argv[1]}: was measured with {before[0]} on {before[1]} threads, "
                 f"must be {after[0]} on {after[1]}")
    common = [key for key in new if key in old]
    if not common:
        sys.exit("compare.py: the results have no row in common")
    slower = 0
    for key in common:
        was, now = old[key]["share_of_peak"], new[key]["share_of_peak"]
        bad = now < least(old[key])
        slower += bad
        print(f"{'slower' if bad else 'ok':6}  {was:.3f} -> {now:.3f}  {key[1]:6}  {key[0]}")
    print(f"compared: {len(common)}, slower: {slower}")
    sys.exit(3 if slower else 0)


main()
