# SPDX-License-Identifier: Apache-2.0
"""_run.py - trace(): a step that a function builds, as one rank of many."""
import os

from . import _file
from ._error import TraceError
from ._player import Player
from ._summary import summary_of


def set_aside(player, path):
    """Writes what was recorded of a step that failed half way beside `path`; the sentence that says so."""
    if not player.recorder.events:
        return ""
    aside = os.fspath(path) + ".partial"
    player.recorder.recording = False
    player.recorder.finish_timers()
    _file.write(aside, player.recorder, [player.rank], player.device)
    return f"; the {len(player.recorder.events)} events recorded until then are in {aside}"


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
    with Player(rank, world_size, device, strict, kernels) as player:
        step = build()
        if not callable(step):
            raise TraceError(f"tessera.torch.trace: build() returned {step!r}, must be the step, a function")
        for _ in range(warmup):
            step()
        player.begin()
        try:
            step()
        except Exception as error:
            raise TraceError(f"tessera.torch.trace: the recorded step failed: {error}{set_aside(player, out)}") from error
        player.end()
    _file.write(out, player.recorder, [rank], device)
    return summary_of(player.recorder, os.fspath(out))
