# SPDX-License-Identifier: Apache-2.0
"""_summary.py - what a record holds, in a few numbers."""
import dataclasses
from typing import Dict, List, Tuple


@dataclasses.dataclass
class Summary:
    path: str
    rank: int
    world_size: int
    collectives: Dict[str, Tuple[int, int]]      # operation: calls, bytes of the larger buffers
    operators: int
    flop: int
    peak_bytes: int
    memory: Dict[str, int]                       # parts of peak_bytes
    warnings: List[str]

    def __str__(self):
        calls = ", ".join(f"{n} {op} of {size / 1e6:.1f} MB" for op, (n, size) in sorted(self.collectives.items()))
        parts = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in self.memory.items() if size)
        return (f"rank {self.rank} of {self.world_size}: {self.operators} operators, {self.flop / 1e12:.3f} TFLOP; "
                f"{calls or 'no collectives'}; peak {self.peak_bytes / 1e9:.2f} GB ({parts}); {self.path}")


def summary_of(recorder, path):
    collectives, operators, flop = {}, 0, 0
    for event in recorder.events:
        args = event["args"]
        if event["cat"] == "compute":
            operators += 1
            flop += args["flop"]
        elif event["cat"] == "communication":
            calls, size = collectives.get(args["op"], (0, 0))
            collectives[args["op"]] = calls + 1, size + max(args["in_bytes"], args["out_bytes"])
    peak, parts, _ = recorder.storages.peak()
    return Summary(path, recorder.rank, recorder.world_size, collectives, operators, flop, peak, parts, list(recorder.warnings))
