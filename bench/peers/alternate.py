# SPDX-License-Identifier: Apache-2.0
"""alternate.py - two sides timed in one process, sample by sample in turn:

    probe, peer, probe, ours, probe, peer, probe, ours, ...

A probe is the rate of all threads, of FMAs or of products in bf16. A sample counts if the probes on
both its sides reach 0.93 of the run's best and the operating system hardly ever took a core away during it (a probe is too
short to see that); so a disturbance spoils a sample instead of a side. Sampling goes on until both
sides have enough, or four times as many were taken: then the row is marked as disturbed. Threads
that wait still spin for some milliseconds, so each sample follows a pause.
"""
import resource
import time

from tessera import _lib

QUIET, PAUSE = 0.93, 0.02
SWITCHES = 20  # involuntary ones per second of a thread; another busy process makes hundreds


class Probe:
    """The rate of so many threads, by libtessera of the Python package; bf16: of products in bf16."""

    def __init__(self, threads, bf16=False):
        self._precision = _lib.lib.TESS_PRECISION_BF16 if bf16 else _lib.lib.TESS_PRECISION_FP32
        self._context = _lib.context(threads)
        info = _lib.ffi.new("tess_ctx_info *")
        _lib.check(_lib.lib.tess_ctx_query(self._context, info))
        self.isa, self.threads = _lib.ffi.string(info.isa).decode(), info.threads

    def peak(self):
        """FLOP/s just now; takes about 3 ms."""
        timing = _lib.ffi.new("tess_timing *")
        opts = _lib.ffi.new("tess_timing_opts *", {"samples": 1, "samples_max": 1, "quiet": 0.5,
                                                      "probe": self._precision})
        nothing = _lib.ffi.callback("tess_timed_fn", lambda user: 0)
        _lib.check(_lib.lib.tess_timing_run(self._context, opts, nothing, _lib.NULL, timing))
        return timing.flops


def sample(probe, side):
    """Seconds, the lower of the rates before and after, and whether we kept the cores."""
    before = probe.peak()
    time.sleep(PAUSE)
    switches, start = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, time.perf_counter()
    side()
    seconds = time.perf_counter() - start
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches
    after = probe.peak()
    return seconds, min(before, after), max(before, after), switches <= SWITCHES * seconds * probe.threads


def alternate(probe, peer, ours, wanted):
    """Times of undisturbed samples of both, how many were taken, and the best probe."""
    times = {peer: [], ours: []}
    peer(), ours()
    for samples in range(4 * wanted):
        for side in (peer, ours):
            times[side].append(sample(probe, side))
        best = max(high for side in times for _, _, high, _ in times[side])
        kept = {side: [t for t, low, _, alone in times[side] if alone and low >= QUIET * best] for side in times}
        if min(len(kept[peer]), len(kept[ours])) >= wanted:
            break
    disturbed = min(len(kept[peer]), len(kept[ours])) < wanted
    if not kept[peer] or not kept[ours]:
        kept = {side: [seconds for seconds, *_ in times[side]] for side in times}
    return kept[peer], kept[ours], samples + 1, disturbed, best


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
