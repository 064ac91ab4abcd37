#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""left_out.py - errors on sources that the parameters were not fitted on: every source left out whole, in turn.

    tools/left_out.py --tessera build/release/bin/tessera --reference FOLDER [--json OUT] [--rows]

FOLDER holds the published tables as CSV files. A source is a table, or one of the sources of a table with several. For each
source, every value of share/simulator/parameters.json whose origin names it is taken out: of software it falls back to the
profile that its profile is like, or to the simulator's default; of hardware it is fitted again to the other sources on that
hardware (`tessera calibrate`), and scalars of its systems are 1. Then the source is predicted. What a profile states (from
code or papers, not fitted) stays: a user knows it too.

Errors are predicted / measured - 1 of steps; the bias is their mean with sign. The mean over sources counts each source once.
"""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARAMETERS = ROOT / "share/simulator/parameters.json"

# Name -> map of its table, words in the column `group` or `source` that choose its rows (None: all), and what names it in origins.
SOURCES = {
    "Korthikanti et al.": ("e2e_training", None, r"Korthikanti"),
    "vTrain": ("vtrain", None, r"vTrain"),
    "BLOOM": ("bloom_sweeps", None, r"BLOOM"),
    "DGX Cloud": ("dgx_cloud_h100", None, r"DGX Cloud"),
    "NeMo 24.07": ("nemo_2407", None, r"NeMo 24\.07's"),
    "MosaicML": ("mosaicml_mpt", None, r"MosaicML"),
    "Megatron-Bridge": ("megatron_bridge", None, r"Megatron-Bridge"),
    "SimuMax B200": ("simumax_b200", None, r"SimuMax's B200 runs"),
    "DeepSeek-V3": ("deepseek_v3", None, r"2505\.09343"),
    "MLPerf": ("canonical", r"MLPerf", r"MLPerf"),
    "torchtitan": ("canonical", r"torchtitan", r"fitted: torchtitan"),
    "nanotron": ("canonical", r"nanotron", r"fitted: nanotron"),
    "MegaScale": ("canonical", r"MegaScale", r"MegaScale"),
}
FITTED = re.compile(r"fitted|the same")


def run(tessera, *arguments):
    done = subprocess.run([tessera, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def names_source(origins, index, words):
    """Whether the origin at index is a fit that names the source; "the same" stands for the origin before it."""
    while index > 0 and re.match(r"(fitted: )?the same", origins[index]):
        index -= 1
    return "fitted" in origins[index] and re.search(words, origins[index]) is not None


def without(parameters, words):
    """A copy of the parameters without what was fitted on a source; and names of hardware values to fit again."""
    left = json.loads(json.dumps(parameters))
    again = []
    for group in ("hardware", "software"):
        for owner, entry in left[group].items():
            names = list(entry["values"])
            origins = [entry["values"][n][1] for n in names]
            for i, name in enumerate(names):
                if not names_source(origins, i, words):
                    continue
                if group == "hardware":
                    again.append(f"{owner}.{name}")
                else:
                    del entry["values"][name]
    left["scalars"] = [s for s in left["scalars"] if not re.search(words, s["origin"])]
    return left, again


def tables_of(tessera, reference):
    """Map -> path of every table with steps."""
    found = {}
    for path in sorted(reference.glob("*.csv")):
        result = run(tessera, "validate", str(path))
        if "step" in result.get("quantities", {}):
            found[result["map"]] = path
    return found


def rows_of(path, words, inside, out):
    """Writes the rows of a table that name the source (or those that do not), with paths of clusters made absolute."""
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    at = header.index("system.cluster") if "system.cluster" in header else None
    kept = []
    for row in rows:
        if at is not None and "/" in row[at]:
            row[at] = str(path.parent / "clusters" / pathlib.Path(row[at]).name)
        if words is None or (re.search(words, " ".join(row)) is not None) == inside:
            kept.append(row)
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *kept])
    return len(kept)


def owners_of(tessera, table, folder, parameters):
    """Kinds of hardware whose values the table's predictions depend on: those whose gemm_share moves them."""
    plain = run(tessera, "validate", str(table), "--params", str(folder / "plain.json"))["cases"]
    owners = set()
    for owner in parameters["hardware"]:
        changed = json.loads(json.dumps(parameters))
        changed["hardware"][owner]["values"]["kernel_us"] = [9, "probe"]
        (folder / "probe.json").write_text(json.dumps(changed))
        moved = run(tessera, "validate", str(table), "--params", str(folder / "probe.json"))["cases"]
        if [c["predicted"] for c in plain] != [c["predicted"] for c in moved]:
            owners.add(owner)
    return owners


def leave_out(tessera, tables, source, parameters, folder, hardware):
    kind, words, fits = SOURCES[source]
    own, others = folder / "own.csv", []
    if not rows_of(tables[kind], words, True, own):
        return None
    left, again = without(parameters, fits)
    start, fitted = folder / "left.json", folder / "fitted.json"
    start.write_text(json.dumps(left))
    for other, path in tables.items():
        if other == kind and words is None:
            continue
        rest = folder / f"other_{other}.csv"
        if other == kind and not rows_of(path, words, False, rest):
            continue
        if other != kind:
            rows_of(path, None, True, rest)
        if hardware[other] & {name.split(".")[0] for name in again}:
            others.append(str(rest))
    used = start
    if again and others:
        run(tessera, "calibrate", *others, "--params", ",".join(again), "--from", str(start), "-o", str(fitted))
        used = fitted
    result = run(tessera, "validate", str(own), "--params", str(used))
    return [c for c in result["cases"] if c["quantity"] in ("step", "memory")], bool(again and others), again


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--reference", required=True, type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rows", action="store_true")
    args = parser.parse_args()
    parameters = json.loads(PARAMETERS.read_text())
    tables = tables_of(args.tessera, args.reference)
    summary, signs = {}, []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "plain.json").write_text(json.dumps(parameters))
        hardware = {}
        for kind, path in tables.items():
            rows_of(path, None, True, folder / "table.csv")
            hardware[kind] = owners_of(args.tessera, folder / "table.csv", folder, parameters)
        for source, (kind, _, _) in SOURCES.items():
            if kind not in tables:
                continue
            done = leave_out(args.tessera, tables, source, parameters, folder, hardware)
            if not done:
                continue
            cases, refit, again = done
            summary[source] = {"again": again, "refit": refit}
            for quantity in ("step", "memory"):
                errors = [c["error_pct"] for c in cases if c["quantity"] == quantity]
                if not errors:
                    continue
                inside = [c.get("inside") for c in cases if c["quantity"] == quantity]
                summary[source][quantity] = {
                    "n": len(errors), "mean": sum(map(abs, errors)) / len(errors), "bias": sum(errors) / len(errors),
                    "median": sorted(map(abs, errors))[len(errors) // 2], "errors": errors,
                    "inside": None if None in inside else sum(inside)}
            if args.rows:
                for c in cases:
                    print(f"    {source}: {c['label'][:40]:40s} {c['quantity']:6s} {c['error_pct']:+7.1f}")
    for quantity in ("step", "memory"):
        parts = {s: v[quantity] for s, v in summary.items() if quantity in v}
        print(f"{quantity:22s} {'rows':>5s} {'mean':>7s} {'median':>7s} {'bias':>7s}  inside")
        for source, v in parts.items():
            inside = "" if v["inside"] is None else f"{100 * v['inside'] / v['n']:5.0f} %"
            print(f"  {source:20s} {v['n']:5d} {v['mean']:7.2f} {v['median']:7.2f} {v['bias']:+7.2f}  {inside}")
        signs = [e for v in parts.values() for e in v["errors"]]
        if not parts:
            continue
        print(f"  {'all rows':20s} {len(signs):5d} {sum(map(abs, signs)) / len(signs):7.2f} "
              f"{sorted(map(abs, signs))[len(signs) // 2]:7.2f} {sum(signs) / len(signs):+7.2f}")
        print(f"  {'mean of sources':20s} {len(parts):5d} {sum(v['mean'] for v in parts.values()) / len(parts):7.2f} "
              f"{'':7s} {sum(v['bias'] for v in parts.values()) / len(parts):+7.2f}")
    if args.json:
        args.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
