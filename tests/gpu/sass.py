#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sass.py - what the machine code of the GPU kernels does in the loop over keys, for each device.

    tests/gpu/sass.py IMAGE [--table]      IMAGE: the fatbin or a cubin; --table prints every kernel

The loop is the innermost one with HMMA. Checked: as many HMMA as the formula has, LDGSTS in it (copies
that nothing waits for), no LDL and no STL (local memory), and instructions for each HMMA. Those count
what runs for a chunk of keys that is not the last, in lists whose maxima have settled, ordered: blocks
of code with RED (the atomic mode) and the forward pass's rescaling of its sums are left out. What only
the last chunk does is counted too.

cuobjdump is that of PATH, of CUDA, or of the Triton in $TESS_TORCH_ENV; without one: status 77.
"""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Instructions for each HMMA, at most: of head_dim 128, where a block has so many queries.
BARS = {("forward", 64): 5.8, ("forward", 128): 5.1, ("backward", 64): 5.1}
NAME = re.compile(r"(forward|backward|key_blocks)_d(\d+)_[gk](\d+)_(bf16|fp16)$")


def find_tool():
    places = os.path.join(os.environ.get("TESS_TORCH_ENV", os.path.join(ROOT, "build/venv-torch")),
                          "lib/python*/site-packages/triton/backends/nvidia/bin/cuobjdump")
    return next((p for p in [shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump", *glob.glob(places)]
                 if p and os.path.exists(p)), None)


def disassemble(tool, image):
    """(device, kernel, [(address, instruction, operands)]) of every kernel."""
    path = os.path.dirname(tool) + os.pathsep + os.environ["PATH"]
    done = subprocess.run([tool, "-sass", image], capture_output=True, text=True, check=True,
                          env=dict(os.environ, PATH=path))
    arch = ""
    for part in re.split(r"\n\s*(?=Function : |code for )", done.stdout):
        if part.startswith("code for "):
            arch = part.split()[2]
        elif part.startswith("Function : "):
            found = re.finditer(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);", part)
            yield arch, part.split()[2], [(int(m[1], 16), m[2], m[3]) for m in found]


def target(instruction):
    m = re.search(r"0x([0-9a-f]+)", instruction[2])
    return int(m[1], 16) if m and instruction[1].split(".")[0] == "BRA" else None


def count(code, operation):
    return sum(op.split(".")[0] == operation for _, op, _ in code)


def hot_loop(code):
    """The innermost loop with HMMA, which ends with a branch back."""
    loops = []
    for i in code:
        back = target(i)
        if back is not None and back < i[0]:
            body = [x for x in code if back <= x[0] <= i[0]]
            if count(body, "HMMA"):
                loops.append(body)
    return min(loops, key=len, default=[])


def blocks(body):
    """The loop cut where branches begin and end."""
    targets = {target(i) for i in body} - {None}
    out = [[]]
    for i in body:
        if i[0] in targets and out[-1]:
            out.append([])
        out[-1].append(i)
        if target(i) is not None:
            out.append([])
    return [b for b in out if b]


def executed(body, dim):
    """Instructions of a usual chunk."""
    n = 0
    for b in blocks(body):
        atomic = count(b, "RED") + count(b, "REDG") > 0
        rescale = count(b, "HMMA") == 0 and count(b, "FMUL") >= dim / 2
        n += 0 if atomic or rescale else len(b)
    return n


def products(kind, dim, size):
    """HMMA of a warp for each chunk: gpu_forward_groups.h and gpu_backward_groups.h have the sizes."""
    if kind == "forward":
        keys, tiles = (2048 if size <= 32 else 4096) // dim, 1 if size == 16 else 2
        return tiles * keys * dim // 64
    if kind == "backward":
        return 5 * dim * (2048 // dim if size == 32 else 32) // 128
    return dim // 2 * (1 if size == 16 else 2)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return 2
    tool = find_tool()
    if not tool:
        print("skipped: no cuobjdump, which CUDA and Triton have")
        return 77
    problems, found = [], collections.Counter()
    for arch, name, code in disassemble(tool, sys.argv[1]):
        m = NAME.match(name)
        if count(code, "LDL") or count(code, "STL"):
            problems.append(f"{name}, {arch}: it uses local memory")
        if not m:
            continue
        kind, dim, size = m[1], int(m[2]), int(m[3])
        body = hot_loop(code)
        hmma, each = count(body, "HMMA"), executed(body, dim) / max(count(body, "HMMA"), 1)
        bar = BARS.get((kind, size)) if dim == 128 else None
        found[arch] += 1
        if hmma != products(kind, dim, size):
            problems.append(f"{name}, {arch}: {hmma} HMMA in the loop, must be {products(kind, dim, size)}")
        if not count(body, "LDGSTS"):
            problems.append(f"{name}, {arch}: no LDGSTS in the loop")
        if bar and round(each, 2) > bar:
            problems.append(f"{name}, {arch}: {each:.2f} instructions for each HMMA, must be at most {bar}")
        if "--table" in sys.argv or bar:
            print(f"{arch:7s} {name:26s} {hmma:4d} HMMA, {each:5.2f} instructions for each"
                  + (f", at most {bar}" if bar else ""))
    print("\n".join(problems) or f"{sum(found.values())} kernels of {', '.join(sorted(found))}: all well")
    return 1 if problems or not found else 0


if __name__ == "__main__":
    sys.exit(main())
