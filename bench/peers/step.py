#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""step.py - a training step of the model beside diffusers and PyTorch: time and peak memory.

    bench/peers/step.py                            4096 and 8192 tokens, one thread
    bench/peers/step.py --tokens 1024 --samples 3 --keep blocks --store bf16
    bench/peers/step.py --precision bf16                products in bf16 on both sides: diffusers under autocast

Makes a virtual environment in build/ on the first call and installs torch, diffusers, accelerate,
numpy and cffi from PyPI into it. step_measure.py says what is run. Run it on an otherwise idle machine.
Where PyTorch's products in bf16 end the process (SIGILL where the hypervisor hides AMX's palette), a line says so;
ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment avoids that at a price.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile

from environment import environment

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGES = ["torch", "diffusers", "accelerate", "numpy", "cffi"]


def measure(python, options, what, folder, tokens):
    """What step_measure.py prints in a process of its own; None where products in bf16 ended it."""
    count = str(options.threads)
    done = subprocess.run([python, os.path.join(HERE, "step_measure.py"), what, "--library", options.library,
                           "--folder", folder, "--tokens", str(tokens), "--threads", count,
                           "--samples", str(options.samples), "--keep", options.keep, "--store", options.store,
                           "--precision", options.precision],
                          check=False, stdout=subprocess.PIPE,
                          env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count,
                               "PYTHONPATH": options.package})
    if done.returncode < 0 and options.precision == "bf16":
        print(f"{tokens} tokens, {count} thread(s), precision bf16: {what} ended by {signal.Signals(-done.returncode).name}")
        return None
    done.check_returncode()
    return json.loads(done.stdout)


def measure_all(python, options, tokens):
    """Time and memory of both sides; None where products in bf16 ended a process."""
    with tempfile.TemporaryDirectory() as folder:
        row = measure(python, options, "time", folder, tokens)
        for side in ("peer", "our") if row else ():
            memory = measure(python, options, side + "-memory", folder, tokens)
            if not memory:
                return None
            row["ours_bytes" if side == "our" else "peer_bytes"] = memory["bytes"]
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="4096,8192", help="tokens, separated by commas (default 4096,8192)")
    parser.add_argument("--threads", type=int, default=1, help="of both sides (default 1)")
    parser.add_argument("--samples", type=int, default=5, help="undisturbed samples of each side (default 5)")
    parser.add_argument("--keep", choices=("all", "blocks"), default="all", help="what ours keeps (default all)")
    parser.add_argument("--store", choices=("f32", "bf16"), default="f32", help="and how (default f32)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of products, both sides (default fp32)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "release", "lib", "libtessera_train.so"))
    parser.add_argument("--package", default=os.path.join(ROOT, "build", "release", "python"),
                        help="the folder of the Python package (default build/release/python)")
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "peers-venv"))
    options = parser.parse_args()
    if not os.path.exists(options.library):
        sys.exit(f"{options.library}: does not exist; build the preset release first")
    python = environment(options.venv, PACKAGES)
    rows = []
    for tokens in map(int, options.tokens.split(",")):
        row = measure_all(python, options, tokens)
        if not row:
            continue
        rows.append(row)
        print(f"{tokens} tokens, {options.threads} thread(s), keep {options.keep}, store {options.store}, "
              f"precision {options.precision} ({row['products']}): "
              f"diffusers {row['peer_seconds']:.3f} s, ours {row['ours_seconds']:.3f} s, "
              f"{row['peer_seconds'] / row['ours_seconds']:.2f}x ({row['kept']}/{row['taken']} samples"
              f"{', disturbed' if row['disturbed'] else ''}); "
              f"memory {row['peer_bytes'] / 2**20:.0f} and {row['ours_bytes'] / 2**20:.0f} MiB, "
              f"{row['ours_bytes'] / row['peer_bytes']:.2f}; output apart {row['output_apart']:.1e}, "
              f"gradients {row['gradient_apart']:.1e}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "rows": rows}, file, indent=1)
            file.write("\n")


main()
