#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""timeline_check.py - whether a timeline file is what Perfetto and its readers expect.

    timeline_check.py FILE.json[.gz]...

Of each file: a JSON object with traceEvents; complete events have name, category, time and duration;
events of a track nest or are apart, to the nanosecond; every process and track has a name, tracks from 1;
communication has group, call, op and bytes, begins and ends together on all members that are written,
and its calls are numbered without a gap; a wait ends where the next event of its track begins; values
of memory are not negative and in the order of time. Prints what it counted; the first mistake ends it.
"""
import decimal
import gzip
import json
import sys

CATS = {"compute", "communication", "wait", "copy"}


class Mistake(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Mistake(text)


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data, parse_float=decimal.Decimal)


def nanoseconds(value):
    ns = decimal.Decimal(value) * 1000
    need(ns == int(ns), f"{value} us is no whole number of nanoseconds")
    return int(ns)


def check_track(key, events):
    open_ends = []
    for begin, end, event in sorted(events, key=lambda e: (e[0], -e[1])):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        need(not open_ends or end <= open_ends[-1], f"{key}: \"{event['name']}\" at {begin} ns overlaps the event before it")
        open_ends.append(end)
    ordered = sorted(events, key=lambda e: (e[0], e[1]))
    for (_, end, event), following in zip(ordered, [*ordered[1:], None]):
        if event["cat"] == "wait" and event["name"] == "wait":
            need(following and following[0] == end, f"{key}: nothing begins where the wait ends, at {end} ns")
            need(following[2]["cat"] == "communication", f"{key}: what follows a wait at {end} ns is no communication")


def check_calls(calls):
    groups = {}
    for (group, call), members in calls.items():
        times = {(begin, end, op, size) for begin, end, op, size, _ in members}
        need(len(times) == 1, f"group {group}, call {call}: members differ: {sorted(times)[:2]}")
        ranks = [rank for *_, rank in members]
        need(len(set(ranks)) == len(ranks), f"group {group}, call {call}: a rank takes part twice")
        groups.setdefault(group, set()).add(call)
    for group, numbers in groups.items():
        need(numbers == set(range(len(numbers))), f"group {group}: {len(numbers)} calls, numbered up to {max(numbers)}")
    return len(groups)


def check(path):
    events = load(path)["traceEvents"]
    processes, threads, tracks, calls, last_count = set(), set(), {}, {}, {}
    counts = {"counters": 0}
    for event in events:
        kind, pid = event["ph"], event["pid"]
        if kind == "M":
            (processes if event["name"] == "process_name" else threads).add(pid if event["name"] == "process_name" else (pid, event["tid"]))
        elif kind == "C":
            counts["counters"] += 1
            at = nanoseconds(event["ts"])
            need(at >= last_count.get(pid, 0), f"rank {pid}: counters go back at {at} ns")
            need(all(value >= 0 for value in event["args"].values()), f"rank {pid}: a negative value at {at} ns")
            last_count[pid] = at
        else:
            need(kind == "X", f"an event of the kind {kind}")
            need(event["cat"] in CATS, f"the category {event['cat']}")
            need(event["tid"] > 0, f"rank {pid}: a track 0, which Perfetto puts into track {pid}")
            begin, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            need(begin >= 0 and length >= 0 and event["name"], f"\"{event['name']}\" from {begin} for {length} ns")
            counts[event["cat"]] = counts.get(event["cat"], 0) + 1
            tracks.setdefault((pid, event["tid"]), []).append((begin, begin + length, event))
            if event["cat"] == "communication":
                args = event["args"]
                need(args["op"] and args["bytes"] >= 0, f"\"{event['name']}\" lacks op or bytes")
                calls.setdefault((args["group"], args["call"]), []).append((begin, begin + length, args["op"], args["bytes"], pid))
    need(tracks, "no complete event")
    for key, list_ in tracks.items():
        need(key[0] in processes, f"rank {key[0]} has no name")
        need(key in threads, f"track {key} has no name")
        check_track(f"rank {key[0]}, track {key[1]}", list_)
    counts |= {"ranks": len(processes), "tracks": len(tracks), "groups": check_calls(calls),
               "end_ns": max(end for list_ in tracks.values() for _, end, _ in list_)}
    return counts


def main():
    for path in sys.argv[1:]:
        try:
            counts = check(path)
        except (Mistake, KeyError, ValueError, OSError) as mistake:
            print(f"{path}: {mistake!s}", file=sys.stderr)
            return 1
        print(f"{path}: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
