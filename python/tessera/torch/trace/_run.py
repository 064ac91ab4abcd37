# SPDX-License-Identifier: Apache-2.0
"""_run.py - trace(): a step that a function builds, as one rank of many."""
import contextlib
import os

from . import _file
from ._error import TraceError
from ._player import Player
from ._received import no_value
from ._summary import summary_of


def write(player, path):
    recorder = player.recorder
    _file.write(path, _file.head_of(recorder, [player.rank], player.device), _file.events_of(recorder))


def set_aside(player, path):
    """Writes what was recorded of a step that failed half way beside `path`; the sentence that says so."""
    recorder = player.recorder
    if not recorder.events:
        return ""
    aside = os.fspath(path) + ".partial"
    recorder.end()
    try:
        write(player, aside)
    except TraceError as error:          # the reason of the step's failure counts more
        return f"; {error}"
    return f"; the {len(recorder.events)} events recorded until then are in {aside}"


@contextlib.contextmanager
def explained(player):
    """What PyTorch says of values that fake tensors do not have becomes a sentence with the place."""
    try:
        yield
    except Exception as error:
        sentence = no_value(error) if player.device == "meta" else None
        if sentence is None:
            raise
        raise TraceError(sentence) from error


def trace(build, rank, world_size, out, warmup=2, device="cpu", strict=False, kernels=None):
    """Plays rank `rank` of `world_size` and writes what one step does to the trace file `out`.

    build() runs inside the fake process group and returns the step, a function without arguments: `warmup` calls, then the
    recorded one. device: "cpu" (real tensors), "meta" (fake tensors: no memory, models of any size) or "cuda" (operators are
    timed). kernels: "cpu" or "cuda", whose operators are recorded where a CPU composes what CUDA has as one; "cuda" is the default
    but for device "cpu". strict: what would be a warning is an error. Returns a Summary. The process is left as it was.
    """
    if not callable(build):
        raise TraceError(f"tessera.torch.trace: build is {build!r}, must be a function that returns the step")
    if not isinstance(warmup, int) or warmup < 0:
        raise TraceError(f"tessera.torch.trace: warmup is {warmup!r}, must be a number of steps, 0 or more")
    _file.check(out)
    with Player(rank, world_size, device, strict, kernels) as player:
        with explained(player):
            step = build()
            if not callable(step):
                raise TraceError(f"tessera.torch.trace: build() returned {step!r}, must be the step, a function")
            for _ in range(warmup):
                step()
        player.begin()
        try:
            with explained(player):
                step()
        except Exception as error:
            raise TraceError(f"tessera.torch.trace: the recorded step failed: {error}{set_aside(player, out)}") from error
        player.end()
    write(player, out)
    return summary_of(player.recorder, os.fspath(out))
