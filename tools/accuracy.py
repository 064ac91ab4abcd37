#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""accuracy.py - the tables of docs/accuracy.md: how far published runs are from the simulator.

    tools/accuracy.py --tessera build/release/bin/tessera --reference FOLDER

It writes what stands between its two marks in docs/accuracy.md. FOLDER holds the published tables as CSV files; their names do not matter, `tessera validate` knows
them by their columns. Everything printed comes from `tessera validate --json` and `tessera calibrate
--json`; the words around the numbers are in this file.
"""
import argparse
import csv
import json
import pathlib
import random
import subprocess
import tempfile
import textwrap

# Map -> title, bars by (quantity, group), parameters to fit again without each model, remarks.
TABLES = {
    "e2e_training": ("Korthikanti et al., end to end", {("step", "Korthikanti"): 3}, "", ""),
    "korthikanti_layers": ("Korthikanti et al., one layer", {("layer", None): 2}, "", ""),
    "korthikanti_memory": ("Korthikanti et al., memory", {("memory", None): 0.5}, "", ""),
    "vtrain": ("vTrain, A100", {("step", "single"): 6, ("step", "multi"): 6},
               "deepspeed-2022.host_forward_us,deepspeed-2022.host_backward_us", ""),
    "bloom_sweeps": ("BLOOM's sweeps, A100", {("step", None): 5.5, ("memory", None): 6},
                     "bloom-2022.host_sync_us,bloom-2022.host_batch_ms,scalar.jean-zay bloom-2022,"
                     "scalar.jean-zay-early bloom-2022",
                     "Head dimensions that are no multiple of 8, and 128 with 12 or 14 heads on a GPU, are slow in "
                     "ways that no formula here has; the network is not described in the source."),
    "dgx_cloud_h100": ("DGX Cloud, H100", {("step", None): 4},
                       "h100.gemm_depth,h100.gemm_depth_fp8,h100.flash_forward,nemo-2024.tp_exposed,"
                       "nemo-2024.dp_hidden",
                       "GPT-3 has two revisions of one configuration that differ by 4 to 6 %; runs without overlap of "
                       "tensor parallelism (Nemotron 340B) are predicted slower than they are."),
    "nemo_2407": ("NeMo 24.07, H100, fp8", {}, "", ""),
    "mosaicml_mpt": ("MosaicML, bf16", {("step", None): 5},
                     "mosaic-2023.flash,mosaic-2023.host_batch_ms,scalar.mosaic-h100 mosaic-2023",
                     "The 30B row at 8,192 tokens is slower than its neighbours at 4,096 and 2,048 explain."),
    "megatron_bridge": ("Megatron-Bridge", {("step", "dense"): 5, ("step", "moe"): 20},
                        "gb200.gemm_fp8,gb300.gemm_fp8,"
                        "scalar.bridge-h100 bridge-2025,bridge-moe-2025.ep_exposed,bridge-moe-2025.fp8_cast",
                        "Mixtures of experts change by 40 % between releases with the same columns: CUDA graphs, "
                        "dispatcher and recomputation are not in the table, so its rows bound what can be reached."),
    "simumax_b200": ("SimuMax, B200", {("step", None): 3.5, ("memory", None): 1}, "", ""),
    "simumax_operations": ("SimuMax, single products", {}, "", "A100 over PCIe and B200: their scatter is power."),
    "collectives": ("Collectives, H100, H200, B200, A100",
                    {("collective", "16 MiB and more"): 4, ("collective", None): 8}, "", ""),
    "echo_nccl": ("Echo's nccl-tests, A100",
                  {("collective", "16 MiB and more"): 4, ("collective", None): 8}, "", ""),
    "vtrain_allreduce": ("vTrain's all-reduce",
                         {("collective", "16 MiB and more"): 4, ("collective", None): 8}, "", ""),
    "deepseek_v3": ("DeepSeek-V3, H800", {("step", None): 15}, "", "Layout and batch are those of the technical report."),
    "canonical": ("Frameworks", {("step", None): 8, ("memory", None): 10}, "",
                  "nanotron on 512 GPUs with one micro-batch of 1.34B is twice as slow as anything here explains; its "
                  "neighbours are within 8 %. Software is chosen by the row's source."),
}
RESIDUALS = 3


def run(tessera, *arguments):
    done = subprocess.run([tessera, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: nothing could be scored
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def pct(x):
    return "" if x is None else f"{x:.2f}"


def rows_of(title, result, bars):
    """A line of the overview for each quantity, and for each group."""
    for quantity, all_of in result["quantities"].items():
        parts = [(None, all_of)] + list(all_of["groups"].items())
        for group, s in parts:
            if len(all_of["groups"]) == 1 and group is None:
                continue
            name = title if group is None else f"{title}: {group}"
            bar = bars.get((quantity, group))
            yield (f"| {name} | {quantity} | {s['scored']} | {pct(s['mean_abs_pct'])} | {pct(s['median_abs_pct'])} | "
                   f"{pct(s['max_abs_pct'])} | {pct(s['mean_abs_pct_scalar_1'])} | {s['coverage_pct']:.0f} | {s['half_width_pct']:.1f} | "
                   f"{bar if bar else ''} |")


def residuals(result):
    worst = sorted(result["cases"], key=lambda c: -abs(c["error_pct"]))[:RESIDUALS]
    for c in worst:
        yield (f"row {c['row']} ({c['label']}, {c['quantity']}): measured {c['measured']:.4g}, predicted "
               f"{c['predicted']:.4g} {c['unit']}, {c['error_pct']:+.1f} %")


def reasons(result):
    count = {}
    for s in result["skipped"]:
        count[s["reason"]] = count.get(s["reason"], 0) + 1
    for reason, n in sorted(count.items(), key=lambda x: -x[1]):
        yield f"{n} x {reason}"


OVERLAP = "echo_slowdown"
OVERLAP_HEAD = """
## Kernels beside communication
Echo's kernels on A100, alone and beside an all-reduce: the given rows with communication beside them. First what was left out
whole: every kernel name in turn is predicted by values fitted without it, by its class or by the constant (`tessera calibrate
--quantity overlap --leave-one-out`). Then rows that were left out: fitted on a random half, judged on the other half, mean of
40 fits ("total" is the mean of its size). Last the shipped values on the rows that they were fitted on. "Total" is the error of
the sum of times; log-RMSE is that of log(predicted / measured). Unknown kernels are not predicted well by anyone: the total
comes out right, single kernels do not. Nearly all extra time is of one kernel (GammaBetaBackwardCUDAKernel_32x32) and of
elementwise kernels of 3 to 5 us that wait for a free unit, which no ratio describes.

| rows | predicted by | rows | total, % | log-RMSE | mean error, us |
|---|---|---|---|---|---|"""


def halves(tessera, path, splits=20):
    """Scores of the half of a table's rows that the fit did not have: means over all splits."""
    parameters = json.loads((pathlib.Path(__file__).resolve().parent.parent / "share/simulator/parameters.json").read_text())
    for hardware in parameters["hardware"].values():
        hardware.pop("overlap", None)
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    sums = {}
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{folder}/{half}.csv" for half in "ab"]
        pathlib.Path(f"{folder}/bare.json").write_text(json.dumps(parameters))
        for seed in range(splits):
            random.Random(seed).shuffle(rows)
            for name, part in zip(names, (rows[:len(rows) // 2], rows[len(rows) // 2:])):
                with open(name, "w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows([header, *part])
            for fitted, judged in (names, names[::-1]):
                run(tessera, "calibrate", fitted, "--quantity", "overlap", "--from", f"{folder}/bare.json", "-o",
                    f"{folder}/fit.json")
                scores = run(tessera, "validate", judged, "--params", f"{folder}/fit.json")["overlap"]
                for model, s in scores.items():
                    total = sums.setdefault(model, dict.fromkeys(s, 0))
                    for key, value in s.items():
                        total[key] += abs(value) / (2 * splits)
    return sums


def overlap(tessera, path, result):
    left_out = run(tessera, "calibrate", str(path), "--quantity", "overlap", "--leave-one-out")["left_out_overlap"]
    yield OVERLAP_HEAD
    for what, scores in (("kernel left out", left_out), ("other half", halves(tessera, path)),
                         ("fitted on them", result["overlap"])):
        for model, s in scores.items():
            name = {"predicted": "name, class, constant"}.get(model, model.replace("_", " "))
            yield (f"| {what} | {name} | {s['rows']:.0f} | {s['total_pct']:{'.1f' if what == 'other half' else '+.1f'}} | {s['log_rmse']:.3f} | "
                   f"{s['mean_us']:.1f} |")


HEAD = """
## Published tables
`tessera validate` on every table. Errors are |predicted / measured - 1| in %. Repeated configurations count once. "scalar 1"
is the mean without the one scalar that a (system, software era) may have; unknown systems have none. Coverage is the share of
rows inside of their intervals in %, half-width the median of half of an interval in % of the prediction. Parameters and
intervals were fitted on these rows, so the section after next fits parameters again without each model in turn and predicts
that model.

| table | quantity | scored | mean | median | max | scalar 1 | coverage | half-width | bar |
|---|---|---|---|---|---|---|---|---|---|"""
BEGIN, END = "<!-- made by tools/accuracy.py -->\n", "<!-- end -->\n"


def fill(text, indent):
    return textwrap.fill(text, 127, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def page(tessera, reference):
    """Lines of the part between the marks."""
    found = {}
    for path in sorted(reference.glob("*.csv")):
        result = run(tessera, "validate", str(path))
        found[result["map"]] = (path, result)
    if OVERLAP in found:
        yield from overlap(tessera, *found[OVERLAP])
    yield HEAD
    for name, (title, bars, _, _) in TABLES.items():
        if name in found:
            yield from rows_of(title, found[name][1], bars)
    yield "\n## Largest residuals, and what is left out"
    for name, (title, _, _, remark) in TABLES.items():
        if name not in found:
            continue
        result = found[name][1]
        skipped = "; ".join(reasons(result))
        yield fill(f"- **{title}**: " + "; ".join(residuals(result)) + f". {remark}".rstrip() +
                   (f" Skipped: {skipped}." if skipped else ""), "  ")
    others = [f"`{name}` ({result['rows']} rows)" for name, (_, result) in found.items() if not result["scored"]]
    yield "\n" + fill("Tables without a run that can be predicted, whose rows are all named as skipped: " +
                      f"{', '.join(others)}.", "")
    yield "\n## Leave one model out"
    yield "The listed parameters are fitted again to all models but one, which they then predict (`tessera calibrate`).\n"
    yield "| table | parameters | as shipped | fitted | model left out |\n|---|---|---|---|---|"
    for name, (title, _, parameters, _) in TABLES.items():
        if name in found and parameters:
            r = run(tessera, "calibrate", str(found[name][0]), "--params", parameters, "--leave-one-out")
            yield (f"| {title} | {parameters.replace(',', ', ')} | {pct(r['before_mean_abs_pct'])} | "
                   f"{pct(r['after_mean_abs_pct'])} | {pct(r['left_out_mean_abs_pct'])} |")
    yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--reference", required=True, type=pathlib.Path)
    args = parser.parse_args()
    path = pathlib.Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
    text = path.read_text()
    before, rest = text.split(BEGIN)
    made = "\n".join(page(args.tessera, args.reference))
    path.write_text(before + BEGIN + made + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
