#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_pages.py - makes one page of each kind with the command, and has pages.py open them.

    make_pages.py --tessera PATH [--shot FOLDER]

The masks have heads of windows of different widths, so that the page of a plan shows something to
balance. The training run is the smallest there is; the runs that are compared are made up: four
arms of three seeds, of which one is as good as the first, one better, and one worse.
"""
import argparse
import json
import math
import pathlib
import random
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


def made_up_step(step, steps, seed, end, sparse_from, density):
    noise = random.Random(f"{seed} {step}")  # the same in all arms, as clips and noise are
    luck = random.Random(seed).gauss(0, 0.02)
    level = (1 + luck) * (end + 1.2 * math.exp(-4 * step / steps))
    share = density + (1 - density) * math.exp(-(step - sparse_from) / 20) if sparse_from and step > sparse_from else 1
    line = {"step": step, "loss": level * noise.uniform(0.8, 1.2), "lr": 0.003, "grad_norm": noise.uniform(0.5, 1),
            "step_ms": 60 + 60 * share, "attention_ms": 60 * share, "linear_ms": 45, "other_ms": 10, "optimiser_ms": 4,
            "data_ms": 1, "tokens_per_s": 2e4, "attention_gflop": 8 * share, "val_loss": None, "val_buckets": None}
    if sparse_from:
        line |= {"density": share, "recall": 1 - 0.3 * math.exp(-step / 60), "sparse_layers": 4 if share < 1 else 0,
                 "predictor_loss": 0.4 * math.exp(-step / 90) + 0.02, "select_ms": 2.0, "learn_ms": 1.5}
    if step % 25 == 0:
        scatter = 1 + random.Random(f"{seed} {step} {end}").gauss(0, 0.002)
        line |= {"val_loss": level * scatter, "val_buckets": [level * scatter * f for f in (0.5, 0.8, 1.1, 1.6)]}
    return line


def write_run(folder, seed, settings, end, sparse_from=0, density=1.0, steps=400):
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps({"seed": seed, "data": "shapes", "lr": 0.003, **settings}))
    lines = [made_up_step(step, steps, seed, end, sparse_from, density) for step in range(1, steps + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if sparse_from:
        events = [{"step": sparse_from + 5 * layer, "layer": layer, "event": "switch", "why": {"recall": 0.96}} for layer in range(4)]
        events.append({"step": 220, "layer": 2, "head": 1, "event": "back", "why": {"recall": 0.88}})
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def write_runs(folder):
    for seed in range(3):
        write_run(folder / f"dense-{seed}", seed, {"attention": "dense"}, 0.1)
        write_run(folder / f"dsv-{seed}", seed, {"attention": "dsv", "density": 0.125}, 0.1003, 90, 0.125)
        write_run(folder / f"oracle-{seed}", seed, {"attention": "oracle", "density": 0.125}, 0.094, 120, 0.125)
        write_run(folder / f"window-{seed}", seed, {"attention": "window", "density": 0.125}, 0.112, 120, 0.125)
    return sorted(folder.iterdir())


def write_table(path, rows=9):
    """Made-up runs of two groups, with times and memory."""
    lines = ["label,group,model.name,layout.gpus,layout.tp,training.global_batch,system.cluster,measured.step_ms,measured.memory_gib"]
    for i in range(rows):
        lines.append(f"run {i},{'one' if i % 2 else 'another'} group,gpt-22b,{8 << i % 3},8,{8 * (i + 1)},a100-80,{1500 * (i + 1) >> i % 3},{30 + i}")
    path.write_text("\n".join([*lines, ""]))


def write_traces(folder, ranks=3, steps=60):
    """Traces of a profiler: the higher the rank, the longer its kernels, and the others wait."""
    names = ["ampere_sgemm_128x64_tn", "flash_fwd_kernel", "layer_norm_kernel", "void vectorized_elementwise_kernel<4, int>(int)"]
    paths = []
    for rank in range(ranks):
        noise, now, events = random.Random(5), 1000.0, []
        for i in range(steps):
            took = round(noise.uniform(100, 150) + 20 * rank, 3)
            events.append({"ph": "X", "cat": "kernel", "name": names[i % 4], "ts": now, "dur": took, "args": {"stream": 7}})
            now = round(now + took + 3, 3)
            if i % 5 == 4:
                end = 1000 + 190 * (i + 1)
                events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": now, "dur": round(end - now, 3),
                               "args": {"stream": 9, "Collective name": "allreduce", "In msg nelems": 1000 * (i % 2 + 1),
                                        "Out msg nelems": 1000 * (i % 2 + 1), "dtype": "BFloat16", "Process Group Ranks": "[0, 1, 2]"}})
                now = end + 5.0
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events}))
    return paths


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
        tessera("simulate", "gpt-175b-96", "--price", "2.5", "--tokens", "300B", "--html", here / "cost.html")
        mixture = "g8b4i256f1s0,g2b5i512f1s0,g2b5i1024f1s0,g4b1i2048f1s0,g1b10i256f4s0,g3b1i512f4s0,g8b2i256f85s1,g4b1i512f85s1"
        tessera("plan", "--clips", mixture, "--ranks", 32, "--cluster", "h100", "--html", here / "mixture.html")
        tessera("plan", "--clips", mixture, "--ranks", 24, "--steps", 8, "--html", here / "mixture_steps.html")
        pages += [here / "mixture.html", here / "mixture_steps.html"]
        write_table(here / "runs.csv")
        tessera("validate", here / "runs.csv", "--html", here / "measured.html")
        tessera("simulate", "gpt-175b-96", "--set", "training.global_batch=24", "--slow-rank", "17=1.2", "--html", here / "timeline.html")
        pages += [here / "cost.html", here / "measured.html", here / "timeline.html"]
        runs = write_runs(here / "runs")
        tessera("compare", *runs, "-o", here / "compare.html")
        tessera("report", here / "runs/dsv-0", "-o", here / "sparse_run.html")
        traces = write_traces(here)
        tessera("trace", *traces, "--html", here / "trace.html")
        tessera("trace", traces[0], "--html", here / "trace_one.html")
        pages += [here / "compare.html", here / "sparse_run.html", here / "trace.html", here / "trace_one.html"]
        if has_train(options.tessera):
            tessera("train", "--preset", "tiny", "--data", "shapes", "--steps", 6, "--out", here / "run", "--quiet",
                    "--validate-every", 3, "--sample-every", 2, "--sample-steps", 2)
            tessera("report", here / "run", "-o", here / "run.html")
            tessera("profile", here / "run", "--clips", 2, "-o", here / "sparsity.html")
            pages += [here / "run.html", here / "sparsity.html"]
        shot = ["--shot", options.shot] if options.shot else []
        return subprocess.run([sys.executable, HERE / "pages.py", *shot, *pages]).returncode


if __name__ == "__main__":
    sys.exit(main())
