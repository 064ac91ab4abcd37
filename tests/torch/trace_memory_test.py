#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_memory_test.py - peaks of memory of played steps against torch's own trackers, and against what a process really takes.

    PYTHONPATH=build/release/python python tests/torch/trace_memory_test.py
"""
import contextlib
import io
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import tessera.torch
from trace_programs import Net, cut, data, sharded, training

# A step whose tensors are large beside what PyTorch itself takes.
LAYERS, WIDTH, ROWS = 6, 768, 1024


# ---- against trackers ------------------------------------------------------------------------------------------------

def plain_model():
    torch.manual_seed(0)
    return Net()


def fsdp_model():
    torch.manual_seed(0)
    return sharded(Net(), init_device_mesh("cpu", (dist.get_world_size(),)))


def tensor_parallel_model():
    torch.manual_seed(0)
    return cut(Net(), init_device_mesh("cpu", (dist.get_world_size(),)))


def tracked(build, tracker):
    """Peak of the third step by torch's tracker, inside the fake process group."""
    from torch.testing._internal.distributed.fake_pg import FakeStore
    hook = sys.excepthook
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    try:
        model = build()
        tokens = data()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        step = training(model, tokens, optimizer)
        step()
        step()
        with contextlib.redirect_stdout(io.StringIO()), tracker(model, optimizer, tokens) as tracked_by:
            step()
        return sum(s["Total"] for s in tracked_by.get_tracker_snapshot("peak").values())
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


def plain_tracker(model, optimizer, tokens):
    from torch.distributed._tools.mem_tracker import MemTracker
    tracker = MemTracker()
    tracker.track_external(model, optimizer, tokens)
    return tracker


def fsdp_tracker(model, optimizer, tokens):
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    tracker = FSDPMemTracker(model, optimizer)
    tracker.track_inputs((tokens,))
    return tracker


def trackers(folder):
    for name, build, tracker in (("plain", plain_model, plain_tracker), ("tensor parallel", tensor_parallel_model, plain_tracker),
                                 ("fsdp", fsdp_model, fsdp_tracker)):
        want = tracked(build, tracker)
        got = tessera.torch.trace(lambda b=build: training(b(), data()), 1, 4, f"{folder}/m.json").peak_bytes
        print(f"{name}: peak {got} bytes, {want} by torch's tracker", flush=True)
        assert abs(got - want) <= 0.02 * want, f"{name}: peak {got}, {want} by torch's tracker"


# ---- against a process -----------------------------------------------------------------------------------------------

def large():
    torch.manual_seed(0)
    return training(Net(LAYERS, WIDTH), torch.arange(ROWS).reshape(1, ROWS) % 50)


def status(key):
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key))


def grow():
    """Prints by how many bytes this process grew at most in three steps."""
    torch.set_num_threads(1)
    training(Net(1, WIDTH), torch.arange(16).reshape(1, 16))()    # what PyTorch loads at its first step
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")                  # the high-water mark begins here
    step = large()
    for _ in range(3):
        step()
    print(status("VmHWM") - before)


def growth(folder):
    # Freed memory goes back to the system at once, or the C library's own stock of it would count, too.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--grow"], capture_output=True, text=True, check=True, env=environment)
    real = int(done.stdout)
    got = tessera.torch.trace(large, 0, 1, f"{folder}/g.json", device="meta", kernels="cpu").peak_bytes
    print(f"plain: peak {got / 1e6:.1f} MB, the process grew by {real / 1e6:.1f} MB, {100 * (got / real - 1):+.1f} %")
    assert abs(got - real) <= 0.05 * real


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trackers(folder)
        growth(folder)
    print("all passed")


if __name__ == "__main__":
    sys.exit(grow() if sys.argv[1:] == ["--grow"] else main())
