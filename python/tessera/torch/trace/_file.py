# SPDX-License-Identifier: Apache-2.0
"""_file.py - a record as a trace file of version 2 (docs/formats.md), whole or not at all."""
import gzip
import json
import os

import torch

from ._error import TraceError

_TRACKS = {"compute": 0, "communication": 1, "wait": 2}


def document(recorder, stands_for, device):
    """The lines of the file. The order of events stands for times that were not measured: one microsecond each."""
    peak, parts, at = recorder.storages.peak()
    # Storages of events by the order of their first use, so that runs that differ in their warm-up agree.
    numbers = {}
    for event in recorder.events:
        for key in ("reads", "writes"):
            event["args"][key] = [numbers.setdefault(n, len(numbers)) for n in event["args"][key]]
    where = recorder.events[min(at, len(recorder.events) - 1)]["args"].get("module", "") if recorder.events else ""
    head = {"tessera_trace": 2, "rank": recorder.rank, "ranks": recorder.world_size, "stands_for": list(stands_for),
            "torch": torch.__version__.split("+")[0], "device": device, "kernels": recorder.kernels, "peak_bytes": peak, "peak_event": at, "peak_module": where,
            "memory": parts, "warnings": list(recorder.warnings)}
    yield '{"otherData": ' + json.dumps(head) + ',\n"traceEvents": [\n'
    time, last = 0.0, len(recorder.events) - 1
    for i, event in enumerate(recorder.events):
        took = event["args"].get("ns", 1000) / 1000
        whole = {"name": event["name"], "cat": event["cat"], "ph": "X", "pid": recorder.rank, "tid": _TRACKS[event["cat"]],
                 "ts": round(time, 3), "dur": took, "args": event["args"]}
        time += took
        yield json.dumps(whole, separators=(",", ":")) + (",\n" if i < last else "\n")
    yield "]}\n"


def write(path, recorder, stands_for, device):
    """The file under a temporary name, then renamed: a failure leaves what was there before."""
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(folder, f".tessera-{os.getpid()}-trace.tmp")
    try:
        opened = gzip.open(temporary, "wt", encoding="utf-8") if path.endswith(".gz") else open(temporary, "w", encoding="utf-8")
        with opened as file:
            for line in document(recorder, stands_for, device):
                file.write(line)
            file.flush()
        os.replace(temporary, path)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error
