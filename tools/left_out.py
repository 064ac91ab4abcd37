#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""left_out.py - errors on sources that the parameters were not fitted on: every source left out whole, in turn.

    tools/left_out.py --tessera build/release/bin/tessera --reference FOLDER [--json OUT] [--rows] [--write]

FOLDER holds the published tables as CSV files. A source is a table, or one of the sources of a table with several. For each
source, every value of share/simulator/parameters.json whose origin names it is taken out: of software it falls back to the
profile that its profile is like, or to the simulator's default; of hardware it is fitted again to the other sources on that
hardware (`tessera calibrate`), and scalars of its systems are 1. A profile that no other source measured counts as not
measured. Then the source is predicted. What a profile states (from code or papers, not fitted) stays: a user knows it too.

Intervals are left out too: loss, residuals and spreads of inputs are those of the other sources (tools/interval_fit.py), so
two rounds are needed. With --write the values fitted on all sources go to the parameters.

Errors are predicted / measured - 1 of steps; the bias is their mean with sign. The mean over sources counts each source once.
"""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import tempfile

import interval_fit

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
QUANTITIES = ("step", "memory")
# Of sampled clips (share/measured): name -> what chooses its rows, and what names it in origins (None: nothing was fitted on it).
CLIPS = ROOT / "share/measured/video_sampling.csv"
CLIP_SOURCES = {
    "xDiT": (r",xDiT H", r"xDiT"),
    "HunyuanVideo's users": (r",HunyuanVideo issue 2,", None),
    "STA": (r",STA,", r"2502\.04507"),
    "LightX2V, H100": (r",LightX2V H100,", None),
    "LightX2V, 8 H100": (r",LightX2V 8 H100,", None),
    "LightX2V, H200": (r",LightX2V H200,", None),
    "Wan2.1's users": (r",Wan2.1 issue 433,", None),
    "Wan2.2": (r",Wan2.2 README,", None),
    "Morphic": (r",Morphic,", None),
    "Voltage Park": (r",Voltage Park,", None),
}
EXPERTS = "Megatron-Bridge"  # whose mixtures of experts give their spread


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


def without(parameters, source, words):
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
    for entry in left["software"].values():
        entry["measured"] = [name for name in entry.get("measured", []) if name != source]
    for spread in left["interval"]["step"].values():
        if re.search(words, spread[2]):
            spread[:2] = [0, 0]
    left["scalars"] = [s for s in left["scalars"] if not re.search(words, s["origin"])]
    return left, again


def tables_of(tessera, reference):
    """Map -> path of every table with steps; cases of all tables."""
    found, cases = {}, []
    for path in sorted(reference.glob("*.csv")):
        result = run(tessera, "validate", str(path))
        if "step" in result.get("quantities", {}):
            found[result["map"]] = path
        cases += result["cases"]
    return found, cases


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
    """The source's own rows as a table, and the parameters without it; None where it has no rows."""
    kind, words, _ = SOURCES[source]
    number = list(SOURCES).index(source)
    own, others = folder / f"own{number}.csv", []
    if not rows_of(tables[kind], words, True, own):
        return None
    left, again = without(parameters, source, SOURCES[source][2])
    start, fitted = folder / "left.json", folder / f"fitted{number}.json"
    start.write_text(json.dumps(interval_fit.set_inputs(left)))
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
    if again and others:
        run(tessera, "calibrate", *others, "--params", ",".join(again), "--from", str(start), "-o", str(fitted))
    else:
        fitted.write_text(start.read_text())
    return own, fitted


def cases_of(tessera, table, parameters):
    return [c for c in run(tessera, "validate", str(table), "--params", str(parameters))["cases"]
            if c["quantity"] in QUANTITIES]


def rows_by(cases, plain=False):
    """Quantity -> source -> rows of interval_fit."""
    return {q: {source: rows for source, of in cases.items()
                if (rows := [interval_fit.row_of(c, plain) for c in of if c["quantity"] == q])} for q in QUANTITIES}


def but(rows, source):
    return {q: {s: r for s, r in of.items() if s != source} for q, of in rows.items()}


def summary_of(cases):
    errors = [c["error_pct"] for c in cases]
    widths = sorted(50 * (c["high"] - c["low"]) / c["predicted"] for c in cases)
    return {"n": len(errors), "mean": sum(map(abs, errors)) / len(errors), "bias": sum(errors) / len(errors),
            "median": sorted(map(abs, errors))[len(errors) // 2], "coverage": 100 * sum(c["inside"] for c in cases) / len(cases),
            "half_width": widths[len(widths) // 2]}


def print_all(cases):
    """The summaries, quantity by quantity; their list as JSON."""
    found = {}
    for quantity in QUANTITIES:
        parts = {s: [c for c in of if c["quantity"] == quantity] for s, of in cases.items()}
        parts = {s: summary_of(of) for s, of in parts.items() if of}
        every = summary_of([c for of in cases.values() for c in of if c["quantity"] == quantity])
        print(f"{quantity:22s} {'rows':>5s} {'mean':>7s} {'median':>7s} {'bias':>7s} {'coverage':>9s} {'half-width':>11s}")
        for source, v in [*parts.items(), ("all rows", every)]:
            print(f"  {source:20s} {v['n']:5d} {v['mean']:7.2f} {v['median']:7.2f} {v['bias']:+7.2f} {v['coverage']:9.0f} "
                  f"{v['half_width']:11.1f}")
        mean = {key: sum(v[key] for v in parts.values()) / len(parts) for key in ("mean", "bias", "coverage", "half_width")}
        print(f"  {'mean of sources':20s} {len(parts):5d} {mean['mean']:7.2f} {'':7s} {mean['bias']:+7.2f} "
              f"{mean['coverage']:9.1f} {mean['half_width']:11.1f}")
        found[quantity] = {"sources": parts, "rows": every, "mean_of_sources": mean}
    return found


def clips(tessera, parameters, folder):
    """Sampled clips: every source predicted by the parameters without what was fitted on it."""
    header, *lines = CLIPS.read_text().splitlines()
    print(f"{'clip':22s} {'rows':>5s} {'mean':>7s} {'median':>7s} {'bias':>7s} {'coverage':>9s} {'half-width':>11s}")
    found = {}
    for source, (words, origin) in CLIP_SOURCES.items():
        own, path = folder / "clips.csv", folder / "clips.json"
        own.write_text("\n".join([header, *(line for line in lines if re.search(words, line))]) + "\n")
        left = parameters
        if origin:
            left, again = without(parameters, source, origin)
            for owner, name in (value.split(".") for value in again):
                del left["hardware"][owner]["values"][name]
        path.write_text(json.dumps(left))
        found[source] = summary_of(run(tessera, "validate", str(own), "--params", str(path))["cases"])
    mean = {key: sum(v[key] for v in found.values()) / len(found) for key in ("mean", "median", "bias", "coverage", "half_width")}
    for source, v in [*found.items(), ("mean of sources", {"n": len(found), **mean})]:
        print(f"  {source:20s} {v['n']:5d} {v['mean']:7.2f} {v['median']:7.2f} {v['bias']:+7.2f} {v['coverage']:9.0f} "
              f"{v['half_width']:11.1f}")
    return {"sources": found, "mean_of_sources": mean}


def write_interval(fitted):
    """Numbers of the member "interval" in the file of parameters; its text stays as it is otherwise."""
    text = PARAMETERS.read_text()
    head, tail = text.split('"interval": {')
    for section in fitted["interval"].values():
        for name, (known, other, origin) in section.items():
            tail = tail.replace(re.search(rf'"{name}": \[[^"]*{re.escape(json.dumps(origin))}', tail)[0],
                                f'"{name}": [{known}, {other}, {json.dumps(origin)}')
    PARAMETERS.write_text(head + '"interval": {' + tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--reference", required=True, type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    parameters = json.loads(PARAMETERS.read_text())
    tables, every = tables_of(args.tessera, args.reference)
    neutral = interval_fit.set_inputs(json.loads(json.dumps(parameters)))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "plain.json").write_text(json.dumps(neutral))
        hardware, files, given = {}, {}, {}
        for kind, path in tables.items():
            rows_of(path, None, True, folder / "table.csv")
            hardware[kind] = owners_of(args.tessera, folder / "table.csv", folder, neutral)
        for source, (kind, _, _) in SOURCES.items():
            done = kind in tables and leave_out(args.tessera, tables, source, parameters, folder, hardware)
            if done:
                files[source] = done
                given[source] = cases_of(args.tessera, done[0], folder / "plain.json")
        experts = [interval_fit.row_of(c) for c in given.get(EXPERTS, []) if c["group"] == "moe"]
        given = rows_by(given, True)
        left_out = rows_by({s: cases_of(args.tessera, *of) for s, of in files.items()})
        cases = {}
        for source, (own, path) in files.items():
            left = json.loads(path.read_text())
            interval_fit.set_residuals(left, but(left_out, source), but(given, source), experts if source != EXPERTS else [])
            path.write_text(json.dumps(left))
            cases[source] = cases_of(args.tessera, own, path)
    if args.rows:
        for source, of in cases.items():
            for c in of:
                print(f"    {source}: {c['label'][:40]:40s} {c['quantity']:6s} {c['error_pct']:+7.1f} "
                      f"-+{50 * (c['high'] - c['low']) / c['predicted']:.1f}{'' if c['inside'] else ' *'}")
    found = print_all(cases)
    with tempfile.TemporaryDirectory() as name:
        found["clip"] = clips(args.tessera, parameters, pathlib.Path(name))
    interval_fit.set_residuals(neutral, left_out, given, experts)
    interval_fit.set_others(neutral, every)
    print("fitted on all sources:", {k: neutral["interval"]["step"][k][:2] for k in ("loss", "residual", "experts")},
          "memory", neutral["interval"]["memory"]["residual"][:2])
    if args.write:
        write_interval(neutral)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
