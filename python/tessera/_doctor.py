# SPDX-License-Identifier: Apache-2.0
"""_doctor.py - what slows this machine down or breaks this process: the library's findings, and those of Python."""
from __future__ import annotations

import os
from typing import Iterable, Iterator, NamedTuple

from ._lib import NULL, check, context, ffi, lib


class Finding(NamedTuple):
    """level: "problem", "warning", "note" or "fine"; sentence: what was found; advice: what to do, "" if nothing."""
    level: str
    topic: str
    sentence: str
    advice: str


def openmp_runtimes(maps: Iterable[str]) -> list[str]:
    """The OpenMP runtimes among the lines of /proc/self/maps, by their paths."""
    names = ("libgomp", "libiomp5", "libomp")
    paths = {line.split(None, 5)[5].strip() for line in maps if line.count(" ") >= 5 and "/" in line}
    return sorted({os.path.realpath(p) for p in paths if os.path.basename(p).startswith(names)})


def _of_python() -> Iterator[Finding]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            runtimes = openmp_runtimes(file)
    except OSError:
        runtimes = []
    if len(runtimes) > 1:
        yield Finding("warning", "openmp", f"{len(runtimes)} OpenMP runtimes are in this process: {', '.join(runtimes)}",
                      "their threads compete for cores: let one package bring the runtime")
    from importlib import metadata
    try:
        version = metadata.version("tessera")
    except metadata.PackageNotFoundError:
        return
    yield Finding("warning", "package", f"PyPI's package tessera {version}, another project, is installed beside tessera-dit",
                  "pip uninstall tessera, then pip install --force-reinstall tessera-dit")


def doctor() -> list[Finding]:
    """Findings about the machine and this process, as a list of Finding: levels of what slows down or breaks.

    >>> import tessera
    >>> all(f.sentence for f in tessera.doctor())
    True
    """
    found, failed = [], []
    levels = ["problem", "warning", "note", "fine"]

    def add(user, finding):
        try:
            level = levels[min(int(finding.level), len(levels) - 1)]
            found.append(Finding(level, *(ffi.string(text).decode("utf-8", "replace") for text in
                                          (finding.topic, finding.sentence, finding.advice))))
        except Exception as error:  # an exception does not pass through C
            failed.append(error)
    check(lib.tess_doctor_run(context(), NULL, ffi.callback("tess_finding_fn", add), NULL))
    if failed:
        raise failed[0]
    return found + list(_of_python())
