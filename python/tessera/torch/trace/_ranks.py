# SPDX-License-Identifier: Apache-2.0
"""_ranks.py - several ranks of a script, one process each; equal records are kept once.

Without a list the corners: the first and the last rank of every process group that a played rank is in, and its peers, until
there are no new ones.
"""
import hashlib
import json
import os
import subprocess
import sys

from . import _file
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


def _steps(document):
    return (event for event in document["traceEvents"] if event["ph"] == "X")


def _corners(document):
    found = set()
    for event in _steps(document):
        args = event["args"]
        if "group" in args:
            first, count, stride = args["group"]
            found |= {first, first + (count - 1) * stride}
        elif "ranks" in args:
            found |= {args["ranks"][0], args["ranks"][-1]}
        if "peer" in args:
            found.add(args["peer"])
    return found


def _work(document):
    """A hash of what must be equal: events with process groups and peers as seen from the rank, and memory."""
    rank = document["otherData"]["rank"]
    found = hashlib.sha256(json.dumps(document["otherData"]["memory"]).encode())
    for event in _steps(document):
        args = dict(event["args"])
        if "group" in args:
            first, count, stride = args.pop("group")
            args["seen"] = [count, stride]
        if "ranks" in args:
            args["seen"] = [r - args["ranks"][0] for r in args.pop("ranks")]
        if "peer" in args:
            args["peer"] -= rank
        args.pop("ns", None)
        found.update(json.dumps([event["name"], event["cat"], args]).encode())
    return found.digest()


def _few(n):
    if n > LIMIT:
        raise TraceError(f"{n} ranks are to be played, at most {LIMIT} can be; give --ranks with fewer")


def play(ranks, world_size, out, arguments):
    """Plays each rank with `python -m tessera.torch.trace --rank`; returns (path, ranks that it stands for) of each kept file."""
    waiting = [0, world_size - 1] if ranks is None else list(ranks)
    _few(len(waiting))
    done, kept = set(), {}
    while waiting:
        rank = waiting.pop(0)
        if rank in done:
            continue
        done.add(rank)
        path = path_of(out, rank)
        status = subprocess.run([sys.executable, "-m", "tessera.torch.trace", "--rank", str(rank), "--world-size", str(world_size),
                                 "--out", path, *arguments]).returncode
        if status:
            raise TraceError(f"rank {rank}: failed with exit code {status}")
        document = _file.read(path)
        if ranks is None:
            waiting += sorted(_corners(document) - done - set(waiting))
            _few(len(done) + len(waiting))
        first, stands_for = kept.setdefault(_work(document), (path, []))
        stands_for.append(rank)
        if first != path:
            os.unlink(path)
    for path, stands_for in kept.values():
        if len(stands_for) > 1:
            document = _file.read(path)
            _file.write(path, {**document["otherData"], "stands_for": stands_for}, document["traceEvents"])
    return list(kept.values())
