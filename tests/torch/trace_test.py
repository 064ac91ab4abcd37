#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_test.py - programs that tessera.torch.trace plays do what they do on real processes.

    PYTHONPATH=build/release/python python tests/torch/trace_test.py [--tessera PROGRAM] [PROGRAM...]

Every program of trace_programs.py runs on 2 and 4 processes with gloo, where a dispatch mode notes operators and collectives;
then each rank is played by itself, on real and on fake tensors. Collectives agree in order, operation, group, bytes and peer,
operators in names and shapes. So do a hundred random programs of collectives.
"""
import argparse
import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

import tessera.torch
import trace_random
from processes import run
from tessera.torch.trace import _collectives, _versions
from tessera.torch.trace._mode import Recorder
from trace_programs import PROGRAMS

RANDOM = 100
# Pipelines with split backward passes, and DDP that looks for unused parameters, walk sets of parameters: the order of their
# operators changes from run to run.
UNORDERED = ("interleaved_zero_bubble", "zbv", "ddp_unused")
# Copies that gloo's own reduce-scatter makes.
GLOO = {"copy_", "split", "cat", "clone", "stack", "add_", "div_"}


class Observer(Recorder):
    """Operators and collectives of a real process: nothing is answered."""

    def _collective(self, func, operator, args, kwargs):
        result = func(*args, **kwargs)
        if not (_collectives.is_quiet(operator.space, operator.short) or _collectives.is_wait(operator.space, operator.short)):
            call = _collectives.call_of(operator.space, operator.short, args, kwargs, result)
            if call is not None:
                self._note(call)
        return result


def calls(events):
    keys = ("op", "group", "ranks", "in_bytes", "out_bytes", "dtype", "peer")
    return [{k: e["args"][k] for k in keys if k in e["args"]} for e in events if e["cat"] == "communication"]


def operators(events):
    return [(e["name"], e["args"]["shapes"], e["args"]["out"]) for e in events if e["cat"] == "compute"]


@contextlib.contextmanager
def quiet():
    """Pipelines print their tables."""
    with open(os.devnull, "w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
        yield


def observe(rank, ranks, names, folder):
    for name in names:
        recorder = Observer(rank, ranks)
        with quiet(), contextlib.ExitStack() as stack, recorder:
            _versions.fill_in(stack)
            step = builder(name, ranks)()
            step()
            step()
            recorder.modules = _NoModules()
            recorder.begin()
            step()
            recorder.end()
        with open(f"{folder}/{ranks}-{name}-{rank}.json", "w", encoding="utf-8") as file:
            json.dump({"calls": calls(recorder.events), "operators": operators(recorder.events)}, file)
        dist.barrier()
    return f"{len(names)} programs"


class _NoModules:
    @staticmethod
    def path(backward):
        return ""


def builder(name, ranks):
    return trace_random.program(int(name[6:]), ranks) if name.startswith("random") else PROGRAMS[name][0]


# ---- comparison ------------------------------------------------------------------------------------------------------

def same_operators(real, played):
    """Equal but for gloo's own copies: what the real run has besides."""
    real = collections.Counter(json.dumps(o) for o in real)
    played = collections.Counter(json.dumps(o) for o in played)
    more = {json.loads(o)[0] for o in real - played}
    return not played - real and more <= GLOO, (sorted(more), [json.loads(o) for o in played - real][:3])


def shown(document):
    """What Perfetto needs: every process and track has a name, tracks count from 1, and their events are apart."""
    rank = document["otherData"]["rank"]
    named = {e["tid"] for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    ends = {}
    for e in document["traceEvents"]:
        assert e["pid"] == rank and e["name"], e
        if e["ph"] == "X":
            assert e["tid"] in named and e["tid"] > 0 and e["dur"] >= 0 and e["ts"] >= ends.get(e["tid"], 0), e
            ends[e["tid"]] = e["ts"] + e["dur"]
    assert ends, "no event"


def play(name, ranks, rank, folder, device):
    path = f"{folder}/played.json"
    with quiet():
        tessera.torch.trace(builder(name, ranks), rank, ranks, path, device=device, kernels="cpu")
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    shown(document)
    return document


def work(document):
    """What fake and real tensors must agree in: not in waits, for a functional collective waits at once for a fake tensor."""
    return [(e["name"], e["cat"], e["args"]) for e in document["traceEvents"] if e["cat"] != "wait"]


def judge(name, ranks, folder):
    for rank in range(ranks):
        with open(f"{folder}/{ranks}-{name}-{rank}.json", encoding="utf-8") as file:
            real = json.load(file)
        played = play(name, ranks, rank, folder, "cpu")
        got = calls(played["traceEvents"])
        assert got == real["calls"], (f"{name}, rank {rank} of {ranks}: collectives differ: "
                                      f"{[p for p in zip(real['calls'], got) if p[0] != p[1]][:2]}, {len(real['calls'])}, {len(got)}")
        if not name.startswith("random"):
            fine, what = same_operators(real["operators"], [list(o) for o in operators(played["traceEvents"])])
            assert fine, f"{name}, rank {rank} of {ranks}: operators differ: {what}"
            assert not played["otherData"]["warnings"], f"{name}: {played['otherData']['warnings']}"
    return len(got)


def fakes(name, ranks, folder):
    rank = 1
    real, fake = (play(name, ranks, rank, folder, device) for device in ("cpu", "meta"))
    if name in UNORDERED:
        fine, what = same_operators(*([list(o) for o in operators(d["traceEvents"])] for d in (real, fake)))
        assert fine and calls(real["traceEvents"]) == calls(fake["traceEvents"]), f"{name}: {what}"
        return
    for i, (a, b) in enumerate(zip(work(real), work(fake))):
        assert a == b, f"{name}: event {i}: real {a}, fake {b}"
    assert len(work(real)) == len(work(fake)), name
    if any(e["args"].get("op") == "receive" for e in real["traceEvents"]):
        return                           # buffers of messages live differently long: peaks are not compared
    a, b = real["otherData"]["peak_bytes"], fake["otherData"]["peak_bytes"]
    assert abs(a - b) <= 0.02 * a, f"{name}: peak {a} of real tensors, {b} of fake ones"


def simulate(tessera_program, folder, names, ranks):
    """The reader in C takes every file of a job, and its members wait for each other."""
    for name in names:
        given = []
        for rank in range(ranks):
            path = f"{folder}/rank{rank}.json"
            with quiet():
                tessera.torch.trace(builder(name, ranks), rank, ranks, path)
            given += ["--trace", path]
        done = subprocess.run([tessera_program, "simulate", *given, "--cluster", "h100", "--json"], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        result = json.loads(done.stdout)
        assert result["unmatched_calls"] == 0 and result["unpriced_calls"] == 0 and result["step_ms"] > 0, f"{name}: {result['notes']}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera")
    parser.add_argument("programs", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = given.programs or list(PROGRAMS)
    with tempfile.TemporaryDirectory() as folder:
        for ranks in (2, 4):
            own = [n for n in names if n.startswith("random") or PROGRAMS[n][1] <= ranks]
            if not given.programs:
                own = own + [f"random{i}" for i in range(RANDOM if ranks == 4 else RANDOM // 5)]
            print(run(ranks, observe, own, folder), "on gloo", flush=True)
            total = sum(judge(name, ranks, folder) for name in own)
            print(f"{ranks} ranks: {len(own)} programs, {total} collectives of the last rank: as played", flush=True)
        for name in names:
            if not name.startswith("random"):
                fakes(name, 4, folder)
        print("fake tensors: the same records")
        if given.tessera:
            simulate(given.tessera, folder, names, 4)
            print("tessera simulate reads all of them")
    print("all passed")


if __name__ == "__main__":
    sys.exit(main())
