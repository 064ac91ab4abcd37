#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - golden tests of the command.

A case is NAME.sh, run by bash in a folder of its own. Beside it lie NAME.stdout, NAME.stderr and
NAME.exit, what it must print and return; a missing one means nothing, or 0. NAME.stdout.glob and
NAME.stderr.glob are compared line by line with * and ? instead. What changes from machine to machine
the case filters out itself, with sed. A case that exits with 77 was skipped, and its stderr says why.

In a case `tessera` is the command under test, $TESSERA its path, $CASES this folder.

    run.py --tessera build/release/bin/tessera [--accept] [NAME...]

--accept writes what was printed as what must be printed.
"""
import argparse
import difflib
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CASES = pathlib.Path(__file__).resolve().parent
SKIPPED = 77

# What a command that takes more than ten seconds prints where there is no terminal: on a busy machine any of them may.
PROGRESS = re.compile(rb"^tessera \w+: (?:.+   (?:\d+ %   )?[\d.e+]+ ?[kMGTPE]?B?/s(?:   .+ left)?"
                      rb"|step \d+/\d+  .* left)\n", re.M)


def environment(tessera, folder):
    """The caller's, without what would change the output (Archer belongs to ThreadSanitizer)."""
    env = {k: v for k, v in os.environ.items() if k == "OMP_TOOL_LIBRARIES" or
           not k.startswith(("TESS_", "OMP_", "OMPI_", "PMI", "LC_")) and
           k not in ("NO_COLOR", "LANG", "XDG_CACHE_HOME")}
    # What the command sets to execute itself again: every start in a case would be two (limits.sh tests it).
    env.setdefault("GOMP_SPINCOUNT", "1000")
    env.update(LC_ALL="C", HOME=folder, TERM="dumb", TESSERA=str(tessera), CASES=str(CASES),
               PATH=f"{tessera.parent}{os.pathsep}{env.get('PATH', '')}")
    return env


def run(case, tessera):
    folder = tempfile.mkdtemp(prefix="tessera-cli-")
    try:
        done = subprocess.run(["bash", str(case)], cwd=folder, env=environment(tessera, folder),
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=float(os.environ.get("CASE_SECONDS", 300)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    leaked = re.search(rb"\btess_\w+: .*", done.stdout + done.stderr)
    if leaked:
        sys.exit(f"{case.stem}: a sentence of the command carries a C name: {leaked[0].decode(errors='replace')}")
    return {"stdout": done.stdout, "stderr": PROGRESS.sub(b"", done.stderr), "exit": b"%d\n" % done.returncode}


def expected(case, stream):
    """What the file beside the case says, and whether it is a pattern."""
    for name, glob in ((f"{stream}.glob", True), (stream, False)):
        path = case.with_suffix(f".{name}")
        if path.exists():
            return path.read_bytes(), glob
    return (b"0\n" if stream == "exit" else b""), False


def same(got, want, glob):
    if not glob:
        return got == want
    lines, patterns = got.decode(errors="replace").splitlines(), want.decode().splitlines()
    return len(lines) == len(patterns) and all(map(fnmatch.fnmatchcase, lines, patterns))


def show(case, stream, got, want):
    lines = (text.decode(errors="replace").splitlines(keepends=True) for text in (want, got))
    print(f"{case.stem}: {stream} differs")
    sys.stdout.writelines(line if line.endswith("\n") else line + "\n" for line in
                          difflib.unified_diff(*lines, f"expected {stream}", f"printed {stream}"))


def accept(case, result):
    for stream, got in result.items():
        path = case.with_suffix(f".{stream}")
        if same(got, *expected(case, stream)):
            continue
        path.with_suffix(path.suffix + ".glob").unlink(missing_ok=True)
        if got == (b"0\n" if stream == "exit" else b""):
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(got)
        print(f"{case.stem}: {stream} accepted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    cases = [CASES / f"{name}.sh" for name in args.names] or sorted(CASES.glob("*.sh"))
    failed = skipped = 0
    for case in cases:
        result = run(case, args.tessera.resolve())
        if result["exit"] == b"%d\n" % SKIPPED:
            skipped += 1
            print(f"{case.stem}: skipped: {result['stderr'].decode(errors='replace').strip()}")
        elif args.accept:
            accept(case, result)
        else:
            differing = [s for s in result if not same(result[s], *expected(case, s))]
            failed += bool(differing)
            for stream in differing:
                show(case, stream, result[stream], expected(case, stream)[0])
    print(f"{len(cases)} cases, {failed} failed, {skipped} skipped")
    return 1 if failed else SKIPPED if skipped == len(cases) else 0


if __name__ == "__main__":
    sys.exit(main())
