#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_layers.py - includes go down only, and the library neither prints, exits nor asks around.

The table below is the house: a room may include its own headers and those of the rooms it sees.
Public headers count as part of the room that implements them. `cli` sees public headers, the JSON
writer, and the reference, `ref`, which no room sees. Names of files and of types are unique in the
tree, and no folder has more than 45 files.
"""
import os
import re

import tree

CORE = "kernels base options file attn cost plan plan/partition plan/price plan/exchange plan/mix"
SEES = {
    "kernels": "",
    "kernels/bf16": "kernels",
    "base": "kernels kernels/bf16",
    "options": "kernels base",
    "file": "kernels base",
    "attn": "kernels kernels/bf16 base file",
    "gpu/kernels": "",
    "gpu": "kernels base file attn gpu/kernels",
    "cost": "kernels base file attn",
    "plan": CORE,
    "plan/partition": "kernels base plan",
    "plan/price": "kernels base cost plan plan/partition",
    "plan/exchange": "attn kernels base plan",
    "plan/mix": "kernels base file cost plan",
    "comm": "kernels base file",
    "exec": CORE + " comm",
    "cp": CORE + " comm exec",
    "trace": "kernels base file",
    "timeline": "kernels base file cost trace",
    "sim/overlap": "kernels base file trace",
    "sim": CORE + " comm trace timeline sim/overlap sim/events sim/job sim/interval",
    "sim/events": CORE + " comm trace timeline sim/overlap sim",
    "sim/job": CORE + " timeline sim/overlap sim",
    "sim/interval": CORE + " timeline sim/overlap sim",
    "replay": CORE + " comm trace timeline sim/overlap sim",
    "search": CORE + " comm trace timeline sim/overlap sim",
    "job": CORE + " comm trace timeline sim",
    "media": "kernels base file",
    "model": CORE + " comm exec cp media model/linear",
    "model/steps": CORE + " comm exec cp media model model/linear",
    "model/linear": "kernels kernels/bf16 base model",
    "model/lists": CORE + " comm exec cp media model",
    "model/observe": CORE + " comm exec cp media model",
    "data": "kernels base options file media",
    "optim": CORE + " comm exec cp media model data",
    "dsv": CORE + " comm exec cp media model data optim",
    "train": CORE + " comm exec cp media model data optim dsv",
    "report": "kernels base file",
    "ref": "base attn model",
    "cli": "",
    "cli/bench": "cli",
    "cli/check": "cli",
    "cli/cmd": "cli cli/bench cli/check",
    "cli/cmd/doctor": "cli cli/cmd",
    "cli/cmd/train": "cli cli/bench cli/cmd",
    "cli/cmd/simulate": "cli cli/cmd",
}
# Rooms of which a room sees the public headers only.
SEES_PUBLIC = {"report": "plan trace timeline"}
# The lowest room that may include a public header: kernels know base.h for its types. tessera.h is
# for users: no room includes it. The headers of advanced/ have no promise of stability, and no
# header outside of it includes one.
PUBLIC = {
    "base.h": "kernels", "advanced/machine.h": "kernels", "advanced/nearest.h": "base",
    "file.h": "file", "advanced/options.h": "options",
    "attn.h": "attn", "select.h": "attn", "selector.h": "attn", "advanced/plugin.h": "attn", "advanced/selection.h": "attn", "advanced/clusters.h": "attn", "advanced/precision.h": "attn", "advanced/predict.h": "attn",
    "advanced/gpu.h": "gpu",
    "cluster.h": "cost", "advanced/cost.h": "cost",
    "plan.h": "plan", "advanced/exchange.h": "plan", "strategy.h": "plan", "advanced/explain.h": "plan", "advanced/mix.h": "plan", "advanced/plan_file.h": "plan",
    "comm.h": "comm", "advanced/collectives.h": "comm", "mpi.h": "comm", "dist_attn.h": "exec", "cp.h": "cp",
    "advanced/activity.h": "trace", "advanced/timeline.h": "timeline",
    "sim.h": "sim", "scenario.h": "sim", "advanced/sim_detail.h": "sim", "advanced/listing.h": "sim", "advanced/sim_timeline.h": "sim", "advanced/interval.h": "sim", "advanced/goodput.h": "sim/job",
    "advanced/overlap.h": "sim/overlap", "advanced/validate.h": "sim",
    "advanced/trace.h": "replay", "advanced/replay.h": "replay",
    "advanced/search.h": "search", "advanced/job.h": "job", "advanced/run_log.h": "job",
    "media.h": "media", "advanced/clip.h": "media",
    "model.h": "model", "advanced/pass.h": "model", "advanced/sparse.h": "model",
    "data.h": "data", "advanced/dataset.h": "data", "train.h": "optim", "advanced/step.h": "optim",
    "report.h": "report", "advanced/profile_report.h": "report", "advanced/compare.h": "report", "advanced/run_report.h": "report", "advanced/activity_report.h": "report", "advanced/timeline_report.h": "report", "advanced/cost_report.h": "report", "advanced/mix_report.h": "report",
}
OTHER_LIBRARIES = {"mpi.h", "media.h", "model.h", "data.h", "train.h"}  # not part of tessera.h
PUBLIC_SYSTEM = {"stddef.h", "stdint.h"}
MPI_USER = "src/comm/comm_mpi.h"
TABLES = "src/options/option_tables.c"  # describes the public option structs of all rooms

FORBIDDEN = r"\b(v?printf|puts|putchar|perror|exit|_exit|abort|getenv|secure_getenv|setenv)\s*\(|\b(stdout|stderr)\b"
ALLOWED = {("src/base/ctx.c", "getenv"), ("src/base/doctor.c", "getenv")}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)


def includes(root, path):
    """(line number, quoted name or None, bracketed name or None) of each include."""
    text = tree.code(tree.read(root, path), keep_strings=True)
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def room_name(folder):
    """The room of a folder of src/ or cli/: the row of the table that fits it best."""
    return folder[4:] if folder.startswith("src/") else folder


def sees(room, other):
    return other == room or other in SEES[room].split()


def sees_public(room, other):
    return sees(room, other) or other in SEES_PUBLIC.get(room, "").split()


def check_public(root, path):
    name = os.path.relpath(path, "include/tessera")
    for line, quoted, system in includes(root, path):
        if system and not (system in PUBLIC_SYSTEM or (name, system) == ("mpi.h", "mpi.h")):
            yield f"{path}:{line}: <{system}>, a public header includes <stddef.h> and <stdint.h> only"
        if not quoted:
            continue
        other = os.path.normpath(os.path.join(os.path.dirname(name), quoted))
        if other not in PUBLIC:
            yield f'{path}:{line}: "{quoted}" is not a public header'
        elif other.startswith("advanced/") and not name.startswith("advanced/"):
            yield f'{path}:{line}: "{quoted}", a stable header includes no advanced one'
        elif name == "tessera.h":
            if other in OTHER_LIBRARIES:
                yield f'{path}:{line}: "{quoted}" belongs to a library of its own'
        elif name in PUBLIC and not sees_public(PUBLIC[name], PUBLIC[other]):
            yield f"{path}:{line}: {PUBLIC[name]} includes {PUBLIC[other]}, which is not below it"
    if name != "tessera.h" and name not in PUBLIC:
        yield f"{path}: unknown public header; add it to the table in tools/check_layers.py"


def room_of(root, path, quoted):
    """The room an include of a file in src/ reaches, or a complaint."""
    if quoted in ("tess_abi.h", "tess_config.h") or os.path.exists(os.path.join(root, os.path.dirname(path), quoted)):
        return room_name(os.path.dirname(os.path.join(os.path.dirname(path), quoted))), None
    folder, name = os.path.split(quoted)
    if quoted.startswith("tessera/"):
        name = quoted[len("tessera/"):]
        if name == "mpi.h" and path != MPI_USER:
            return None, f"only {MPI_USER} may include it"
        if name in PUBLIC and path == TABLES:
            return "options", None
        return (PUBLIC[name], None) if name in PUBLIC else (None, "no room includes it")
    if folder in SEES and os.path.exists(os.path.join(root, "src", quoted)):
        return folder, None
    return None, "not a header of a room"


def check_source(root, path):
    room = room_name(os.path.dirname(path))
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
        elif not (sees_public if quoted.startswith("tessera/") else sees)(room, other):
            yield f'{path}:{line}: "{quoted}": {room} includes {other}, which is not below it'
    text = tree.code(tree.read(root, path))
    for match in re.finditer(FORBIDDEN, text):
        word = match.group(1) or match.group(2)
        if (path, word) not in ALLOWED:
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {word}: the library does not print, exit or read the environment"


def check_cli(root, path):
    room = os.path.dirname(path)
    if room not in SEES:
        yield f"{path}: unknown room {room}; add it to the table in tools/check_layers.py"
        return
    for line, quoted, system in includes(root, path):
        if system == "mpi.h" and "/cmd_" in path:
            yield f"{path}:{line}: <mpi.h> in a command"
        if not quoted or re.fullmatch(r"tessera/(advanced/)?\w+\.h|ref/ref\.h|file/json_write\.h", quoted):
            continue
        header = next((h for h in (os.path.join(room, quoted), os.path.join("cli", quoted))
                       if os.path.exists(os.path.join(root, h)) and ".." not in quoted), None)
        other = os.path.dirname(header or "")
        if not header:
            yield f'{path}:{line}: "{quoted}", the command includes public headers, ref.h and json_write.h only'
        elif not sees(room, other):
            yield f'{path}:{line}: "{quoted}": {room} includes {other}, which is not below it'


FOLDER_MAX = 45  # files of a folder that a reader can still survey


def check_folders(root):
    counts = {}
    for path in tree.files(root, ["src", "cli"]):
        folder = os.path.dirname(path)
        counts[folder] = counts.get(folder, 0) + 1
    for folder, count in sorted(counts.items()):
        if count > FOLDER_MAX:
            yield f"{folder}: {count} files, at most {FOLDER_MAX}; give it folders"


TYPE = re.compile(r"^(?:typedef\s+)?(?:struct|enum|union)\s+(tess_\w+)\s*\{|^\}\s*(tess_\w+);"
                  r"|^typedef enum \{[^}]*\}\s*(tess_\w+);", re.M)


def check_names(root):
    """Names of .c files and of headers, and names of types, mean one thing in the tree."""
    files, types = {}, {}
    for path in tree.files(root, ["include", "src", "cli", "tests"], (".c", ".h")):
        name = os.path.basename(path)
        if path.startswith("tests/") and path.endswith(".c"):
            continue
        first = files.setdefault(name, path)
        if first != path:
            yield f"{path}: {first} has the same name; names of .c files and of headers are unique"
        if path.startswith("tests/"):
            continue
        for match in TYPE.finditer(tree.code(tree.read(root, path))):
            name = match.group(1) or match.group(2) or match.group(3)
            first = types.setdefault(name, path)
            if first != path:
                yield f"{path}: the type {name} is also defined in {first}; names of types are unique"


def main():
    root = tree.arguments(__doc__.split("\n")[0]).parse_args().root
    problems, count = [*check_names(root), *check_folders(root)], 0
    for folder, check in (("include", check_public), ("src", check_source), ("cli", check_cli)):
        for path in tree.files(root, [folder], (".c", ".h")):
            problems += check(root, path)
            count += 1
    tree.verdict("check_layers", problems, f"{count} files")


main()
