# SPDX-License-Identifier: Apache-2.0
"""_file.py - a record as a trace file of version 2 (docs/formats.md), written whole or not at all.

The head is the first line and an event is one line each, plain or, where the name ends in .gz, packed.
"""
import gzip
import json
import os

import torch

from ._error import TraceError

# Tracks of Perfetto, which would put a track 0 into that of the process's number.
_TRACKS = {"compute": (1, "operators"), "communication": (2, "collectives"), "wait": (3, "waits")}


def head_of(recorder, stands_for, device):
    peak, parts, at = recorder.storages.peak()
    where = recorder.events[min(at, len(recorder.events) - 1)]["args"].get("module", "") if recorder.events else ""
    return {"tessera_trace": 2, "rank": recorder.rank, "ranks": recorder.world_size, "stands_for": list(stands_for),
            "torch": torch.__version__.split("+")[0], "device": device, "kernels": recorder.kernels, "peak_bytes": peak,
            "peak_event": at, "peak_module": where, "memory": parts, "warnings": list(recorder.warnings)}


def events_of(recorder):
    """Where nothing was timed, `ts` and `dur` are the order: one microsecond an event."""
    yield _name_of("process", recorder.rank, 0, f"rank {recorder.rank} of {recorder.world_size}")
    for track, name in _TRACKS.values():
        yield _name_of("thread", recorder.rank, track, name)
    numbers = {}                         # of storages by their first use, so that runs that differ in their warm-up agree
    time = 0.0
    for event in recorder.events:
        args = dict(event["args"])
        for key in ("reads", "writes"):
            args[key] = [numbers.setdefault(n, len(numbers)) for n in args[key]]
        took = args.get("ns", 1000) / 1000
        yield {"name": event["name"], "cat": event["cat"], "ph": "X", "pid": recorder.rank, "tid": _TRACKS[event["cat"]][0],
               "ts": round(time, 3), "dur": took, "args": args}
        time += took


def _name_of(what, rank, track, name):
    """Of the process or a track, for Perfetto."""
    return {"name": f"{what}_name", "cat": "__metadata", "ph": "M", "pid": rank, "tid": track, "args": {"name": name}}


def check(path):
    """Before a program is played for minutes: whether the file can be there."""
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    if not os.path.isdir(folder):
        raise TraceError(f"{path}: cannot be written: no folder {folder}")
    if os.path.isdir(path):
        raise TraceError(f"{path}: cannot be written: it is a folder")


def write(path, head, events):
    """Writes under a temporary name, then renames: a failure leaves what was there before."""
    path = os.fspath(path)
    temporary = os.path.join(os.path.dirname(os.path.abspath(path)), f".tessera-{os.getpid()}-trace.tmp")
    try:
        with _opened(path, temporary, "wt") as file:
            file.write('{"otherData": ' + json.dumps(head) + ',\n"traceEvents": [')
            comma = "\n"
            for event in events:
                file.write(comma + json.dumps(event, separators=(",", ":")))
                comma = ",\n"
            file.write("\n]}\n")
        os.replace(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error


def read(path):
    with _opened(path, path, "rt") as file:
        return json.load(file)


def _opened(path, name, how):
    return (gzip.open if os.fspath(path).endswith(".gz") else open)(name, how, encoding="utf-8")
