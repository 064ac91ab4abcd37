#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""schedules_test.py - orders of torch.distributed.pipelining as it dumps them, against the schedules of `tessera pipeline`.

    python tests/torch/schedules_test.py --tessera build/release/bin/tessera

For many (ranks P, stages of a rank V, micro-batches M): the dumped order is the order of the schedule of the same name, action by
action; PyTorch loads what --schedule-out writes; and of the dump (passes alone, and with its sends and receives) and of the name
the length, the bubble and the micro-batches in flight are those of the longest path through the passes, computed here over the
graph of dependencies, to the nanosecond: equal and unequal stages, with and without hops. ScheduleDualPipeV is a file only.
"""
import argparse
import csv
import graphlib
import json
import pathlib
import random
import subprocess
import tempfile
import types

import torch
from torch.distributed.pipelining import schedules

NAMES = {  # class of PyTorch: our name, stages of a rank
    "ScheduleGPipe": ("gpipe", (1,)),
    "Schedule1F1B": ("1f1b", (1,)),
    "ScheduleInterleaved1F1B": ("interleaved", (1, 2, 3)),
    "ScheduleLoopedBFS": ("gpipe-looped", (1, 2, 3)),
    "ScheduleInterleavedZeroBubble": ("interleaved-zb", (1, 2, 3)),
    "ScheduleZBVZeroBubble": ("zb-v", (2,)),
    "ScheduleDualPipeV": (None, (2,)),
}
RANKS = (1, 2, 4, 7)


def stage_of(index, ranks, chunks):
    """What a schedule asks of a stage before it runs."""
    return types.SimpleNamespace(stage_index=index, num_stages=ranks * chunks, group_size=ranks, group_rank=0, submod=None)


def make(name, ranks, chunks, batches):
    kind = getattr(schedules, name)
    if issubclass(kind, schedules.PipelineScheduleSingle):
        return kind(stage_of(0, ranks, chunks), batches)
    return kind([stage_of(i * ranks, ranks, chunks) for i in range(chunks)], batches)


def passes_of(action):
    """Passes of a cell: (stage, kind, micro-batch)."""
    if action is None:
        return []
    if action.sub_actions:
        return [one for sub in action.sub_actions for one in passes_of(sub)]
    kind = action.computation_type.value
    return [(action.stage_index, kind, action.microbatch_index)] if kind in "FBIW" else []


def as_run(name, order, ranks):
    """Passes of every rank. PyTorch 2.15 numbers the forward passes of the last rank from 1 in the list of Schedule1F1B; what it
    runs (_step_microbatches) is from 0."""
    rows = [[one for action in order[rank] for one in passes_of(action)] for rank in range(ranks)]
    last = [one for one in rows[-1] if one[1] == "F"]
    if name == "Schedule1F1B" and last[0][2] == 1:
        rows[-1] = [(stage, kind, batch - (kind == "F")) for stage, kind, batch in rows[-1]]
    return rows


def longest_path(rows, times, hop):
    """Nanoseconds until the last pass ends."""
    rank_of = {stage: rank for rank, row in enumerate(rows) for stage, _, _ in row}
    last = max(rank_of)
    backward = {(stage, batch): kind for row in rows for stage, kind, batch in row if kind in "BI"}
    needs = {}
    for row in rows:
        for before, (stage, kind, batch) in zip([None] + row, row):
            inputs = {before: 0} if before else {}
            if kind == "F" and stage > 0:
                inputs[stage - 1, "F", batch] = hop * (rank_of[stage - 1] != rank_of[stage])
            if kind in "BI":
                inputs.setdefault((stage, "F", batch), 0)
                if stage < last:
                    inputs[stage + 1, backward[stage + 1, batch], batch] = hop * (rank_of[stage + 1] != rank_of[stage])
            if kind == "W":
                inputs.setdefault((stage, "I", batch), 0)
            needs[stage, kind, batch] = inputs
    end = {}
    for one in graphlib.TopologicalSorter(needs).static_order():
        f, i, w = (part[one[0]] for part in times)
        end[one] = max((end[a] + more for a, more in needs[one].items()), default=0) + {"F": f, "I": i, "W": w, "B": i + w}[one[1]]
    return max(end.values())


def in_flight(row):
    held = [sum((kind == "F") - (kind in "BI") for _, kind, _ in row[:n]) for n in range(1, len(row) + 1)]
    return max(held)


def write(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def check(tessera, words, rows, times, hop):
    lists = [",".join(f"{ns / 1000:.3f}" for ns in part) for part in times]
    out = subprocess.run([tessera, "pipeline", *words, "--json", "--forward-us", lists[0], "--input-us", lists[1], "--weight-us",
                          lists[2], "--hop-us", f"{hop / 1000:.3f}"], capture_output=True, text=True)
    assert out.returncode == 0, f"{words}: {out.stderr}"
    got = json.loads(out.stdout)
    ns = longest_path(rows, times, hop)
    busy = sum({"F": times[0][k], "I": times[1][k], "W": times[2][k], "B": times[1][k] + times[2][k]}[kind]
               for row in rows for k, kind, _ in row)
    assert got["ns"] == ns, f"{words}: {got['ns']} ns, the longest path has {ns}"
    assert abs(got["bubble"] - (1 - busy / (ns * len(rows)))) < 1e-9, f"{words}: bubble {got['bubble']}"
    assert got["in_flight"] == [in_flight(row) for row in rows], f"{words}: in flight {got['in_flight']}"


def check_written(name, path, sizes, rows):
    """What --schedule-out wrote is this order, and PyTorch loads it."""
    with open(path, newline="") as file:
        cells = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(file)]
    assert [[one for action in row for one in passes_of(action)] for row in cells] == rows, f"{name} {sizes}: another order"
    if not issubclass(getattr(schedules, name), schedules.PipelineScheduleSingle):
        loader = make(name, *sizes)
        loader._load_csv(str(path), format="compute_only")
        assert as_run(name, loader.pipeline_order, sizes[0]) == rows


def check_sizes(tessera, folder, name, ours, sizes, draw):
    ranks, chunks, batches = sizes
    schedule = make(name, *sizes)
    rows = as_run(name, schedule.pipeline_order, ranks)
    stages = ranks * chunks
    equal = [[1000] * stages, [900] * stages, [700] * stages]
    unequal = [[draw.randrange(700_000, 1_300_000) for _ in range(stages)] for _ in range(3)]
    dump, lowered, written = folder / "dump.csv", folder / "lowered.csv", folder / "written.csv"
    write(dump, [schedule.pipeline_order[rank] for rank in range(ranks)])
    files = [dump]
    if hasattr(schedule, "_dump_csv"):
        schedule._dump_csv(str(lowered))
        files.append(lowered)
    cases = 0
    for times, hop in ((equal, 0), (unequal, 0), (unequal, draw.randrange(1, 200_000))):
        given = [["--schedule", str(file)] for file in files[:1 + (hop > 0)]]
        if ours:
            given.append(["--schedule", ours, "--stages", str(ranks), "--chunks", str(chunks), "--batches", str(batches),
                          "--schedule-out", str(written)])
        for words in given:
            check(tessera, words, rows, times, hop)
        cases += len(given)
    if ours:
        check_written(name, written, sizes, rows)
    if name == "ScheduleInterleavedZeroBubble" and chunks == 1:
        check(tessera, ["--schedule", "zero-bubble", "--stages", str(ranks), "--batches", str(batches)], rows, unequal, 50_000)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tessera", required=True)
    tessera = parser.parse_args().tessera
    draw = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        for name, (ours, chunks_list) in NAMES.items():
            if not hasattr(schedules, name):
                print(f"{name}: not in PyTorch {torch.__version__}, skipped")
                continue
            cases = refused = 0
            for ranks in RANKS:
                for chunks in chunks_list:
                    for batches in sorted({1, ranks, ranks + 1, 2 * ranks + 2, 4 * ranks}):
                        try:
                            make(name, ranks, chunks, batches)
                        except ValueError:
                            refused += 1
                            continue
                        cases += check_sizes(tessera, pathlib.Path(folder), name, ours, (ranks, chunks, batches), draw)
            assert cases > 0, f"{name}: PyTorch refused every size"
            print(f"{name}: {cases} lengths equal to the nanosecond, {refused} sizes that PyTorch refuses")


if __name__ == "__main__":
    main()
