# SPDX-License-Identifier: Apache-2.0
"""_ranks.py - several ranks of a script, one process each; equal records are kept once.

Without a list the corners: the first and the last rank of every process group that a played rank is in, until there are no new
ones.
"""
import json
import os
import subprocess
import sys

from ._error import TraceError

LIMIT = 4096


def path_of(out, rank):
    """out with the rank before its ending: rank.json, 3: rank3.json."""
    stem, dot, ending = out.partition(".json")
    return f"{stem}{rank}{dot or '.json'}{ending}"


def listed(text, world_size):
    """0,5,7 or all; None: the corners."""
    if text is None or text == "corners":
        return None
    if text == "all":
        return list(range(world_size))
    try:
        ranks = sorted({int(x) for x in text.split(",")})
    except ValueError:
        raise TraceError(f"--ranks is {text!r}, must be all, corners, or numbers with commas between them") from None
    for rank in ranks:
        if not 0 <= rank < world_size:
            raise TraceError(f"--ranks names {rank}, must be 0..{world_size - 1}")
    return ranks


def _corners(document):
    found = set()
    for event in document["traceEvents"]:
        args = event["args"]
        if "group" in args:
            first, count, stride = args["group"]
            found |= {first, first + (count - 1) * stride}
        elif "ranks" in args:
            found |= {args["ranks"][0], args["ranks"][-1]}
        if "peer" in args:
            found.add(args["peer"])
    return found


def _load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _work(document):
    """What must be equal: events with the groups as seen from the rank, and memory."""
    rank = document["otherData"]["rank"]
    events = []
    for event in document["traceEvents"]:
        args = dict(event["args"])
        if "group" in args:
            first, count, stride = args.pop("group")
            args["seen"] = [count, stride]
        if "ranks" in args:
            args["seen"] = [r - args["ranks"][0] for r in args.pop("ranks")]
        if "peer" in args:
            args["peer"] -= rank
        args.pop("ns", None)
        events.append((event["name"], event["cat"], args))
    return json.dumps([events, document["otherData"]["memory"]])


def play(ranks, world_size, out, arguments):
    """Plays each rank with `python -m tessera.torch.trace --rank`; returns (paths that are kept, warnings)."""
    waiting = [0, world_size - 1] if ranks is None else list(ranks)
    done, kept = set(), {}
    while waiting:
        rank = waiting.pop(0)
        if rank in done:
            continue
        done.add(rank)
        if len(done) > LIMIT:
            raise TraceError(f"more than {LIMIT} ranks; give --ranks with fewer")
        path = path_of(out, rank)
        status = subprocess.run([sys.executable, "-m", "tessera.torch.trace", "--rank", str(rank), "--world-size", str(world_size),
                                 "--out", path, *arguments]).returncode
        if status:
            raise TraceError(f"rank {rank}: failed with exit code {status}")
        document = _load(path)
        if ranks is None:
            waiting += sorted(_corners(document) - done)
        key = _work(document)
        if key in kept:
            kept[key][1].append(rank)
            os.unlink(path)
        else:
            kept[key] = (path, [rank])
    for path, stands_for in kept.values():
        if len(stands_for) > 1:
            _stand_for(path, stands_for)
    return [(path, stands_for) for path, stands_for in kept.values()]


def _stand_for(path, ranks):
    with open(path, encoding="utf-8") as file:
        first, rest = file.readline(), file.read()
    rank = json.loads(first[len('{"otherData": '):-2])["rank"]
    first = first.replace(f'"stands_for": [{rank}]', f'"stands_for": {json.dumps(ranks)}', 1)
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(first + rest)
    os.replace(temporary, path)
