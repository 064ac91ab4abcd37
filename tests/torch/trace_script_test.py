#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_script_test.py - unmodified scripts as one rank, values that steer a program, and what is refused.

    PYTHONPATH=build/release/python python tests/torch/trace_script_test.py
"""
import json
import os
import resource
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

import tessera.torch
from tessera.torch.trace import TraceError
from tessera.torch.trace._file import read
from tessera.torch.trace._ranks import listed, play
from tessera.torch.trace._script import trace_script
from trace_programs import plain

SCRIPT = """
import os, torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
assert os.environ["RANK"] == str(dist.get_rank()) and os.environ["WORLD_SIZE"] == str(dist.get_world_size())
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(50):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
raise SystemExit("the script must have been ended")
"""


def fails(call, *words):
    try:
        call()
    except TraceError as error:
        assert all(word in str(error) for word in words), f"{error}: lacks one of {words}"
        assert not dist.is_initialized()
        return
    raise AssertionError(f"nothing failed, must name {words}")


def scripts(folder):
    def script(text):
        path = f"{folder}/train.py"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    before = dict(os.environ), list(sys.argv), list(sys.path), sys.excepthook, dist.init_process_group
    out = f"{folder}/r.json"
    summary = trace_script(script(SCRIPT), [], 1, 4, out)
    assert summary.collectives == {"all_reduce": (1, 4 * (8 * 16 + 16 + 16 * 4 + 4))}, summary.collectives
    assert before == (dict(os.environ), list(sys.argv), list(sys.path), sys.excepthook, dist.init_process_group)
    failing = SCRIPT.replace("    optimizer.step()", "    if i == 2: raise ValueError('no more data')\n    optimizer.step()")
    fails(lambda: trace_script(script(failing), [], 1, 4, out), "ValueError: no more data", "r.json.partial")
    with open(f"{out}.partial", encoding="utf-8") as file:
        assert json.load(file)["traceEvents"]
    fails(lambda: trace_script(script("print()"), [], 1, 4, out), "never called an optimiser")
    fails(lambda: trace_script(script(SCRIPT.replace("range(50)", "range(2)").replace("raise", "#")), [], 1, 4, out),
          "ended after 2 steps")
    twice = SCRIPT.replace("model = Dis", "dist.init_process_group('nccl')\nmodel = Dis")
    fails(lambda: trace_script(script(twice), [], 1, 4, out), "init_process_group twice")
    spawns = "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)"
    fails(lambda: trace_script(script(spawns), [], 1, 4, out), "starts processes of its own")
    for start in ("torch.multiprocessing.Process", "multiprocessing.Process", "multiprocessing.get_context('spawn').Process"):
        starts = f"import multiprocessing, torch.multiprocessing\n{start}(target=print).start()"
        fails(lambda: trace_script(script(starts), [], 1, 4, out), "starts processes of its own")
    loads = "for x in torch.utils.data.DataLoader(torch.ones(100, 2, 8), None, False, None, None, 2):"
    summary = trace_script(script(SCRIPT.replace("for i in range(50):", loads).replace("torch.ones(2, 8)", "x")), [], 1, 4, out)
    assert summary.collectives["all_reduce"][0] == 1
    if not torch.cuda.is_available():
        fails(lambda: trace_script(script("import torch\ntorch.zeros(2).cuda()"), [], 1, 4, out), "needs a GPU")
    fails(lambda: trace_script(f"{folder}/none.py", [], 1, 4, out), "no such script")
    fails(lambda: trace_script(script(SCRIPT), [], 4, 4, out), "rank is 4, must be 0..3")
    reading = SCRIPT.replace("    optimizer.step()", "    x = torch.ones(2); dist.all_reduce(x); x.tolist()\n    optimizer.step()")
    fails(lambda: trace_script(script(reading), [], 1, 4, out, strict=True), "tolist reads a value", "r.json.partial")
    assert before == (dict(os.environ), list(sys.argv), list(sys.path), sys.excepthook, dist.init_process_group)


def several(folder):
    """Corners of the layout; equal records are one file, packed too."""
    script = f"{folder}/train.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    for ending in ("json", "json.gz"):
        kept = play(listed(None, 4), 4, f"{folder}/all.{ending}", ["--", script])
        assert kept == [(f"{folder}/all0.{ending}", [0, 3])], kept
        document = read(kept[0][0])
        assert document["otherData"]["stands_for"] == [0, 3] and not os.path.exists(f"{folder}/all3.{ending}")
        assert [e["name"] for e in document["traceEvents"] if e["cat"] == "communication"] == ["c10d::allreduce_"]
    fails(lambda: play(range(5000), 5000, f"{folder}/all.json", ["--", script]), "5000 ranks are to be played, at most 4096")
    fails(lambda: listed("0,4", 4), "--ranks names 4")
    fails(lambda: listed("a", 4), "--ranks is 'a'")


def refused(folder):
    out = f"{folder}/x.json"
    fails(lambda: tessera.torch.trace(plain, 4, 4, out), "rank is 4, must be 0..3")
    fails(lambda: tessera.torch.trace(plain, 0, 0, out), "world_size is 0")
    fails(lambda: tessera.torch.trace(plain, 0, 4, out, device="tpu"), "device is 'tpu'")
    fails(lambda: tessera.torch.trace(plain, 0, 4, out, warmup=-1), "warmup is -1")
    fails(lambda: tessera.torch.trace(3, 0, 4, out), "build is 3")
    fails(lambda: tessera.torch.trace(lambda: 3, 0, 4, out), "build() returned 3")
    fails(lambda: tessera.torch.trace(fails, 0, 4, f"{folder}/none/x.json"), "x.json: cannot be written: no folder")
    fails(lambda: tessera.torch.trace(fails, 0, 4, folder), "cannot be written: it is a folder")
    os.mkdir(f"{out}.partial")           # what was recorded of a failed step cannot be kept: the reason of the failure is
    fails(lambda: tessera.torch.trace(half_way, 0, 4, out), "no more data", "x.json.partial: cannot be written")
    os.rmdir(f"{out}.partial")
    fails(lambda: tessera.torch.trace(half_way, 0, 4, out), "no more data; the 1 events recorded until then are in")
    fails(lambda: tessera.torch.trace(lambda: tessera.torch.trace(plain, 0, 2, out), 0, 4, out), "recordings do not nest")
    if not torch.cuda.is_available():
        fails(lambda: tessera.torch.trace(plain, 0, 4, out, device="cuda"), "no GPU")
    version = torch.__version__
    for other in ("2.5.1", "2.16.0"):
        torch.__version__ = other
        fails(lambda: tessera.torch.trace(plain, 0, 4, out), f"torch is {other}, must be 2.6 to 2.15")
    torch.__version__ = version
    no_room(out)
    assert not os.path.exists(out) and not [n for n in os.listdir(folder) if n.endswith(".tmp")]


def half_way():
    x, steps = torch.ones(3), iter("aab")

    def step():
        x.mul_(2)
        if next(steps) == "b":
            raise ValueError("no more data")
    return step


def no_room(out):
    """A file that may not grow: a full disk by another name."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        fails(lambda: tessera.torch.trace(plain, 0, 4, out), "x.json: cannot be written", "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def groups(folder):
    """A group without this rank: nothing is sent, and the place is named."""
    def build():
        others = dist.new_group([2, 3])
        return lambda: dist.all_reduce(torch.ones(3), group=others)
    summary = tessera.torch.trace(build, 0, 4, f"{folder}/groups.json")
    assert summary.collectives == {} and len(summary.warnings) == 1, summary
    assert "all_reduce in a process group that rank 0 is not in" in summary.warnings[0], summary.warnings
    assert tessera.torch.trace(build, 2, 4, f"{folder}/groups.json").collectives == {"all_reduce": (1, 12)}


def experts():
    """Tokens to experts by numbers that came from the other ranks: each line with a read says so, and the others read none."""
    x, route = torch.ones(8, 4), nn.Linear(4, 4)

    def step():
        scores = route(x)
        own = torch.tensor([1, 3, 2, 2])
        got = torch.empty_like(own)
        dist.all_to_all_single(got, own)
        sizes = got.tolist()                                  # read
        table = got.numpy().copy()                            # read
        most = int(got.max())                                 # read
        if (got > 2).any():                                   # read
            scores = scores * 2
        while got[0] > most:                                  # read
            break
        sent = [s + (i == 0) for i, s in enumerate(sizes)]
        out = torch.empty(sum(sent), 4)
        dist.all_to_all_single(out, torch.ones(8, 4), sent, own.tolist())   # uneven
        best = out[out[:, 0] > 0]                             # read
        out[out[:, 1] > 2] = torch.zeros(4)                   # read
        out[out[:, 1] > 3] = 0
        chosen = torch.masked_select(out, out > 0)            # read
        places = torch.nonzero(got)                           # read
        rows, = torch.where(got > 1)                          # read
        each = torch.repeat_interleave(torch.arange(4), got)  # read
        kinds = torch.unique(got)                             # read
        same = torch.equal(got, own)                          # read
        counts = torch.bincount(got)                          # read
        kept = scores[scores[:, 0] > 0], own.sum().item(), own.numpy(), torch.nonzero(own), torch.where(out > 0, out, 0), got * 2
        return table, best, chosen, places, rows, each, kinds, same, counts, kept
    return step


def marked(word):
    with open(__file__, encoding="utf-8") as file:
        return [i + 1 for i, line in enumerate(file) if line.rstrip().endswith(f"# {word}")]


def reads(folder):
    path = f"{folder}/moe.json"
    summary = tessera.torch.trace(experts, 1, 4, path)
    lines = [int(w.split(": ")[0].rsplit(":", 1)[1]) for w in summary.warnings]
    assert sorted(lines) == sorted(marked("read") + marked("uneven")), summary.warnings
    for line, warning in zip(lines, summary.warnings):
        assert __file__ in warning and ("even ones are taken" in warning) == (line in marked("uneven")), warning
    with open(path, encoding="utf-8") as file:
        calls = [e["args"] for e in json.load(file)["traceEvents"] if e["cat"] == "communication"]
    assert [(c["in_bytes"], c["out_bytes"]) for c in calls] == [(32, 32), (128, 128)], calls
    fails(lambda: tessera.torch.trace(experts, 1, 4, path, strict=True), "trace_script_test.py", "tolist")
    fails(lambda: tessera.torch.trace(experts, 1, 4, path, device="meta"), f"{__file__}:{marked('read')[1]}: the program reads a value",
          "fake tensors have none; device cpu plays it")
    masked = SCRIPT.replace("torch.ones(2, 8)", "torch.ones(2, 8)[torch.ones(2) > 0]")
    script = f"{folder}/masked.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(masked)
    fails(lambda: trace_script(script, [], 1, 4, path, device="meta"), "masked.py:9: the program reads a value")


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        refused(folder)
        scripts(folder)
        several(folder)
        groups(folder)
        reads(folder)
    print("all passed")


if __name__ == "__main__":
    sys.exit(main())
