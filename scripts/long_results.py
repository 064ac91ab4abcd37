# SPDX-License-Identifier: Apache-2.0
"""long_results.py - what scripts/results-long measured as CSV, which a repository keeps, and as tables.

A folder of three files: settings.json, and for every complete or begun run

    slices.csv   call, data, seed, arm, from, to, seconds, step_ms, density
    losses.csv   data, seed, arm, step, val_loss, val_1 .. val_4: by quarter of the noise levels, lowest first
"""
import csv
import json
import math
import statistics


def number(text):
    return float(text) if text else None


SLICE = {"call": str, "data": str, "seed": int, "arm": str, "from": int, "to": int, "seconds": float, "step_ms": float, "density": number}
LOSS = {"data": str, "seed": int, "arm": str, "step": int, "val_loss": float, **{f"val_{i}": float for i in range(1, 5)}}
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
BEGIN, END = "<!-- scripts/results-long -->", "<!-- end of scripts/results-long -->"


def read(path, columns):
    if not path.exists():
        return []
    with open(path, newline="") as f:
        return [{name: kind(row[name]) for name, kind in columns.items()} for row in csv.DictReader(f)]


def write(path, columns, rows):
    part = path.with_name(path.name + ".part")
    with open(part, "w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([f"{row[name]:.6g}" if isinstance(row[name], (int, float)) else row[name] for name in columns] for row in rows)
    part.replace(path)


def losses_of(data, seed, arm, metrics):
    """Rows of losses.csv from the metrics of a run."""
    return [{"data": data, "seed": seed, "arm": arm, "step": m["step"], "val_loss": m["val_loss"],
             **{f"val_{i + 1}": x for i, x in enumerate(m["val_buckets"])}}
            for m in metrics if m["val_loss"] is not None]


def merged(rows, newer, keys):
    """Both, sorted by the keys; of two with the same ones the newer."""
    return [row for _, row in sorted({tuple(r[k] for k in keys): r for r in [*rows, *newer]}.items())]


def interval(values):
    """Half of the 95 % interval of the mean; NaN of one value."""
    n = len(values)
    return STUDENT.get(n, 2.5) * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan


def ratios(evidence, data, seed, arm):
    """Seconds of dense over those of dsv in the same slices of the same calls; of a step: the arm's last slice beside dense
    slices of its call, of dsv beside the same one."""
    of = [s for s in evidence.slices if (s["data"], s["seed"]) == (data, seed)]
    total, last = [0.0, 0.0], None
    for s in (s for s in of if s["arm"] == arm):
        dense = [d for d in of if d["call"] == s["call"] and d["arm"] == ("dense" if arm == "dsv" else "dense-time")
                 and (arm != "dsv" or (d["from"], d["to"]) == (s["from"], s["to"]))]
        if dense:
            total = [total[0] + dense[-1]["seconds"], total[1] + s["seconds"]]
            last = statistics.median(d["step_ms"] for d in dense) / s["step_ms"]
    return total[0] / total[1] if total[1] and arm == "dsv" else None, last


def change(evidence, data, arm):
    """{seed: the last losses of the arm and of dense} where both are complete."""
    seeds = sorted({row["seed"] for row in evidence.losses if (row["data"], row["arm"]) == (data, arm)})
    pairs = {seed: (evidence.last(data, seed, arm), evidence.last(data, seed, "dense")) for seed in seeds}
    return {seed: pair for seed, pair in pairs.items() if all(pair)}


def gather(evidence, data_sets, arms):
    """What markdown() takes."""
    found = {}
    for data in data_sets:
        for arm in arms:
            pairs = change(evidence, data, arm)
            if not pairs:
                continue
            times = [ratios(evidence, data, seed, arm) for seed in pairs] if arm != "dense" else []
            percent = {key: [100 * (a[key] / b[key] - 1) for a, b in pairs.values()] for key in list(LOSS)[4:]}
            found.setdefault(data, []).append((arm, {
                "loss": [a["val_loss"] for a, _ in pairs.values()], "change": percent["val_loss"],
                "quarters": list(zip(*(percent[f"val_{i}"] for i in range(1, 5)))),
                "run": [t[0] for t in times if t[0]], "step": [t[1] for t in times if t[1]]}))
    return found


def markdown(results):
    """Tables from {data: [(arm, {"loss", "change", "quarters", "run", "step"})]}; values are lists over seeds."""
    out = []
    for data, arms in results.items():
        out += [f"**{data}**: last validation loss, mean over seeds; paired change against dense with its 95 % interval, in all and by",
                "quarter of the noise levels from the lowest; time of a dense run or step as a multiple of the arm's.", "",
                "| arm | seeds | loss | change | by noise | run | step |", "|---|---|---|---|---|---|---|"]
        for arm, r in arms:
            wide = interval(r["change"])
            change = f"{statistics.mean(r['change']):+.2f} %" + (f" (+-{wide:.2f})" if wide == wide else "")
            quarters = " ".join(f"{statistics.mean(q):+.1f}" for q in zip(*r["quarters"])) + " %"
            times = [f"{statistics.mean(r[k]):.2f}" if r[k] else "" for k in ("run", "step")]
            out.append(f"| `{arm}` | {len(r['change'])} | {statistics.mean(r['loss']):.4f} | {change} | {quarters} | {times[0]} | {times[1]} |")
        out.append("")
    return "\n".join(out) if out else "No run is complete yet.\n"


def document(path):
    """A document that gets tables between two marks."""
    text = path.read_text() if path.is_file() else ""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"results-long: --docs is {path}, must be a file with the lines {BEGIN!r} and {END!r}")
    return text


def put(path, text):
    """Replaces what is between the marks."""
    old = document(path)
    new = old[:old.index(BEGIN) + len(BEGIN)] + "\n" + text + old[old.index(END):]
    if new != old:
        path.write_text(new)


def settings(path, mine):
    """The settings of a folder, which must be those of all its runs."""
    before = json.loads(path.read_text()) if path.exists() else mine
    for key in mine:
        if before[key] != mine[key]:
            raise SystemExit(f"results-long: --{key} is {mine[key]}, {path} has {before[key]}: must be the same")
