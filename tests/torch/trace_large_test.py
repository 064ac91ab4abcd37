#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_large_test.py - large decoders on fake tensors: what playing them takes, and the step of Llama-3 8B beside the closed form.

    PYTHONPATH=build/release/python python tests/torch/trace_large_test.py --tessera PROGRAM
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

DECODER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_decoder.py")
SOFTWARE = "pytorch-eager-2024"
SCENARIO = {"schema": 1, "model": {"name": "llama3-8b", "seq": 8192}, "layout": {"gpus": 8, "zero": 3},
            "training": {"micro_batch": 1, "global_batch": 8, "precision": "bf16"}, "system": {"cluster": "h100", "era": SOFTWARE}}


def play(path, *arguments):
    """CPU seconds and GB that the recording process took, by its own last line."""
    done = subprocess.run([sys.executable, "-W", "ignore", DECODER, *arguments, "--out", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(f"{' '.join(arguments)}: {done.stdout.strip()}", flush=True)
    words = done.stdout.split("\n")[-2].split()
    return float(words[0]), float(words[-2])


def simulate(tessera, *arguments):
    done = subprocess.run([tessera, "simulate", *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def seventy_billion(tessera, folder):
    """FSDP2, rank 77 of 512, 80 layers: below 120 s and 2 GB; the simulator says what does not fit."""
    path = f"{folder}/rank77.json"
    seconds, memory = play(path, "70b", "--rank", "77", "--world-size", "512")
    assert seconds < 120 and memory < 2, (seconds, memory)
    result = simulate(tessera, "--trace", path, "--cluster", "h100")["files"][0]
    assert not result["fits"] and result["largest_part"] == "activations", result


def eight_billion(tessera, folder):
    """FSDP2 on 8 H100: within 10 % of the same scenario in closed form, in step and in memory of tensors."""
    path, scenario = f"{folder}/rank0.json", f"{folder}/scenario.json"
    play(path, "8b")
    with open(scenario, "w", encoding="utf-8") as file:
        json.dump(SCENARIO, file)
    played = simulate(tessera, "--trace", path, "--cluster", "h100")
    closed = simulate(tessera, scenario)
    assert played["software"] == closed["software"] == SOFTWARE, (played["software"], closed["software"])
    step, want = played["step_ms"], closed["step_ms"]
    print(f"Llama-3 8B, FSDP2 on 8 H100: {step:.1f} ms as played, {want:.1f} ms in closed form, {100 * (step / want - 1):+.1f} %")
    print(f"    played, ms: {played['files'][0]['classes_ms']}, critical {played['critical_ms']}")
    print(f"    closed form, ms: {closed['breakdown']}, GiB: {closed['memory_parts_gib']}")
    print(f"    tensors at the peak: {played['files'][0]['peak_bytes'] / 1e9:.1f} GB, {played['files'][0]['memory_bytes']}")
    assert abs(step - want) <= 0.1 * want


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        eight_billion(given.tessera, folder)
        seventy_billion(given.tessera, folder)
    print("all passed")


if __name__ == "__main__":
    sys.exit(main())
