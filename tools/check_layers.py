#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_layers.py - includes go down only, and the library neither prints, exits nor asks around.

The table below is the house: a room may include its own headers and those of the rooms it sees.
Public headers count as part of the room that implements them. `cli` sees public headers and the
reference, `ref`, which no room sees.
"""
import os
import re

import tree

BELOW_DIST = "kernels base attn cost plan"
SEES = {
    "kernels": "",
    "base": "kernels",
    "attn": "kernels base",
    "cost": "kernels base attn",
    "plan": "kernels base attn cost",
    "dist": BELOW_DIST,
    "sim": BELOW_DIST + " dist",
    "media": BELOW_DIST + " dist",
    "model": BELOW_DIST + " dist media",
    "train": BELOW_DIST + " dist media model",
    "report": BELOW_DIST + " dist sim media model train",
    "ref": "base attn model",
}
# The lowest room that may include a public header: kernels know base.h for its types. tessera.h is
# for users: no room includes it.
PUBLIC = {
    "base.h": "kernels", "attn.h": "attn", "select.h": "attn", "predict.h": "attn", "cost.h": "cost", "plan.h": "plan", "exchange.h": "plan", "strategy.h": "plan", "dist.h": "dist", "dist_attn.h": "dist", "context.h": "dist",
    "mpi.h": "dist", "sim.h": "sim", "media.h": "media", "model.h": "model", "sparse.h": "model", "data.h": "train", "train.h": "train", "step.h": "train",
    "scenario.h": "sim", "validate.h": "sim", "trace.h": "sim",
    "report.h": "report",
    "compare.h": "report",
}
OTHER_LIBRARIES = {"mpi.h", "media.h", "model.h", "sparse.h", "data.h", "train.h", "step.h"}  # not part of tessera.h
PUBLIC_SYSTEM = {"stddef.h", "stdint.h"}
MPI_USER = "src/dist/comm_mpi.h"

FORBIDDEN = r"\b(v?printf|puts|putchar|perror|exit|_exit|abort|getenv|secure_getenv|setenv)\s*\(|\b(stdout|stderr)\b"
ALLOWED = {("src/base/ctx.c", "getenv"), ("src/base/doctor.c", "getenv")}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def includes(root, path):
    """(line number, quoted name or None, bracketed name or None) of each include."""
    text = tree.code(tree.read(root, path), keep_strings=True)
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def sees(room, other):
    return other == room or other in SEES[room].split()


def check_public(root, path):
    name = os.path.basename(path)
    for line, quoted, system in includes(root, path):
        if system and not (system in PUBLIC_SYSTEM or (name, system) == ("mpi.h", "mpi.h")):
            yield f"{path}:{line}: <{system}>, a public header includes <stddef.h> and <stdint.h> only"
        if quoted and quoted not in PUBLIC:
            yield f'{path}:{line}: "{quoted}" is not a public header'
        elif quoted and name == "tessera.h":
            if quoted in OTHER_LIBRARIES:
                yield f'{path}:{line}: "{quoted}" belongs to a library of its own'
        elif quoted and name in PUBLIC and not sees(PUBLIC[name], PUBLIC[quoted]):
            yield f"{path}:{line}: {PUBLIC[name]} includes {PUBLIC[quoted]}, which is not below it"
    if name != "tessera.h" and name not in PUBLIC:
        yield f"{path}: unknown public header; add it to the table in tools/check_layers.py"


def room_of(root, path, quoted):
    """The room an include of a file in src/ reaches, or a complaint."""
    if quoted == "tess_config.h" or os.path.exists(os.path.join(root, os.path.dirname(path), quoted)):
        return path.split("/")[1], None
    folder, _, name = quoted.partition("/")
    if folder == "tessera":
        if name == "mpi.h" and path != MPI_USER:
            return None, f"only {MPI_USER} may include it"
        return (PUBLIC[name], None) if name in PUBLIC else (None, "no room includes it")
    if folder in SEES and os.path.exists(os.path.join(root, "src", quoted)):
        return folder, None
    return None, "not a header of a room"


def check_source(root, path):
    room = path.split("/")[1]
    if room not in SEES:
        yield f"{path}: unknown room {room}; add it to the table in tools/check_layers.py"
        return
    for line, quoted, system in includes(root, path):
        if system == "mpi.h":
            yield f'{path}:{line}: <mpi.h>, only tessera/mpi.h includes it'
        if not quoted:
            continue
        other, complaint = room_of(root, path, quoted)
        if complaint:
            yield f'{path}:{line}: "{quoted}": {complaint}'
        elif not sees(room, other):
            yield f'{path}:{line}: "{quoted}": {room} includes {other}, which is not below it'
    text = tree.code(tree.read(root, path))
    for match in re.finditer(FORBIDDEN, text):
        word = match.group(1) or match.group(2)
        if (path, word) not in ALLOWED:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {word}: the library does not print, exit or read the environment"


def check_cli(root, path):
    for line, quoted, system in includes(root, path):
        here = quoted and os.path.exists(os.path.join(root, os.path.dirname(path), quoted))
        if quoted and not here and not re.fullmatch(r"tessera/\w+\.h|ref/ref\.h", quoted):
            yield f'{path}:{line}: "{quoted}", the command includes public headers and ref.h only'
        if system == "mpi.h" and "/cmd_" in path:
            yield f"{path}:{line}: <mpi.h> in a command"


def main():
    root = tree.arguments(__doc__.split("\n")[0]).parse_args().root
    problems, count, names = [], 0, {}
    for folder, check in (("include", check_public), ("src", check_source), ("cli", check_cli)):
        for path in tree.files(root, [folder], (".c", ".h")):
            problems += check(root, path)
            count += 1
            first = names.setdefault(os.path.basename(path), path)
            if path.endswith(".c") and first != path:
                problems.append(f"{path}: {first} has the same name; names of .c files are unique")
    tree.verdict("check_layers", problems, f"{count} files")


main()
