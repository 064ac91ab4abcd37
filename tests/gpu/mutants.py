#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py - which mistakes in the GPU kernels the tests of the emulation find.

    tests/gpu/mutants.py BUILD                runs every mutant of tests/gpu/mutants/*.txt
    tests/gpu/mutants.py BUILD NAME..         those whose names begin so
    tests/gpu/mutants.py --check              only says whether each text is in its kernel, once

A mutant is one small edit of one file of src/gpu/kernels. It is compiled into a library that takes the
place of the tests' own, and the tests run until one fails: then the mutant is found. BUILD has the
tests (cmake --build BUILD --target test_gpu_forward test_gpu_backward test_gpu_offsets test_gpu_lists
test_gpu_select test_gpu_host). Verdicts are kept in BUILD/mutants.log: a run that was stopped goes on where it was;
a change of a kernel or a test begins anew.

Format of a file of mutants: any number of these, with lines that begin with # in between.

    mutant forward-mask-off-by-one       a name of one's own: the kernel, then the mistake
    file gpu_forward.h                   of src/gpu/kernels
    - (e & 1) >= left                    the old text: part of a line, or several lines
    + (e & 1) > left                     the new text: none, one or several lines
    at 2                                 if the old text is there more than once: which, from 1
    survives because ...                 if no test can find it: why; all the rest must be found

Spaces and line ends in the old text stand for any of them, also for the \\ at the end of a macro's
line; the new text becomes one line. A good mutant compiles and is a mistake somebody could make: a
barrier or a wait left out, an index off by one, two operands exchanged, a bound, a stride, a scale, a
mask, a cast to 64 bits, a case that is forgotten.

The last line counts. Exit status 0: at least 95 % are found, and each survivor has its reason.
"""
import collections
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
KERNELS = os.path.join(ROOT, "src", "gpu", "kernels")
# The tests of a file, the quickest to fail first.
TESTS = {
    "gpu_forward.h": ["offsets", "forward", "host"],
    "gpu_forward_groups.h": ["forward", "host"],
    "gpu_select.h": ["offsets", "select", "host"],
    "gpu_lists.h": ["offsets", "lists", "backward", "host"],
    "gpu_gather.h": ["offsets", "forward", "backward", "lists", "select", "host"],
}
OTHERS = ["offsets", "backward", "host"]
EMULATION = ["coroutine", "emulation", "emulation_warp"]
SECONDS = 1200  # a mutant may never end, and a machine may be busy


class Mutant:
    def __init__(self, name, where):
        self.name, self.where = name, where
        self.file, self.at, self.reason = "", 0, ""
        self.old, self.new = [], []

    def text(self):
        """The mutated file, or a sentence about what is wrong with the mutant."""
        path = os.path.join(KERNELS, self.file)
        if not self.file or not os.path.exists(path):
            return None, f"there is no file {self.file or '(none named)'} in src/gpu/kernels"
        with open(path, encoding="utf-8") as f:
            source = f.read()
        words = " ".join(self.old).split()
        if not words:
            return None, "it has no old text"
        found = list(re.finditer(r"(?:\s|\\\n)+".join(map(re.escape, words)), source))
        if not found:
            return None, "its old text is not there"
        if self.at > len(found) or (not self.at and len(found) > 1):
            return None, f"its old text is there {len(found)} times; 'at N' says which"
        m = found[max(self.at, 1) - 1]
        return source[: m.start()] + " ".join(self.new) + source[m.end() :], None


def read_mutants():
    mutants, names = [], set()
    for path in sorted(glob.glob(os.path.join(HERE, "mutants", "*.txt"))):
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                where = f"{os.path.basename(path)}:{number}"
                word, _, rest = line.rstrip("\n").partition(" ")
                if not line.strip() or word.startswith("#"):
                    continue
                if word == "mutant":
                    if rest in names or not rest:
                        sys.exit(f"{where}: a mutant needs a name of its own, not '{rest}'")
                    names.add(rest)
                    mutants.append(Mutant(rest.strip(), where))
                elif not mutants:
                    sys.exit(f"{where}: the first line of a mutant is 'mutant NAME'")
                elif word == "file":
                    mutants[-1].file = rest.strip()
                elif word == "at" and rest.strip().isdigit():
                    mutants[-1].at = int(rest)
                elif word == "survives":
                    mutants[-1].reason = rest.strip()
                elif word in "-+":
                    (mutants[-1].old if word == "-" else mutants[-1].new).append(rest)
                else:
                    sys.exit(f"{where}: a line begins with mutant, file, -, +, at or survives, not '{word}'")
    return mutants


def state(file):
    """The hash of what the verdicts on mutants of a file depend on."""
    h = hashlib.sha256()
    tests = TESTS.get(file, OTHERS)
    paths = glob.glob(os.path.join(KERNELS, "*")) + glob.glob(os.path.join(HERE, "*.h"))
    paths += [os.path.join(HERE, f) for f in ("gpu_kernels.c", "gpu_data.c", "gpu_passes.c", "fake_driver.c")]
    paths += [os.path.join(HERE, name + ".c") for name in EMULATION]
    paths += [os.path.join(HERE, f"test_gpu_{t}.c") for t in tests] + glob.glob(os.path.join(ROOT, "src", "gpu", "*.c"))
    for path in sorted(paths):
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()


def compile_mutant(mutant, text, folder, objects):
    kernels = os.path.join(folder, "gpu", "kernels")
    shutil.copytree(KERNELS, kernels)
    with open(os.path.join(kernels, mutant.file), "w", encoding="utf-8") as f:
        f.write(text)
    library = os.path.join(folder, "mutant.so")
    # Most of the time goes into the emulation; a mutant is compiled quickly, since it seldom runs to the end.
    problem = compile_c(folder, ["-O0", "-I", folder], ["gpu_kernels.c"])
    for name in EMULATION:
        kept = os.path.join(objects, name + ".o")
        if not os.path.exists(kept):
            problem = problem or compile_c(objects, ["-O2"], [name + ".c"])
    if problem:
        return None, problem
    parts = [os.path.join(folder, "gpu_kernels.o")]
    parts += [os.path.join(objects, name + ".o") for name in EMULATION]
    subprocess.run([os.environ.get("CC", "cc"), "-shared", *parts, "-o", library, "-lm"], check=True)
    return library, ""


def compile_c(folder, options, sources):
    """Objects of these sources in the folder; what the compiler said of a mistake, or None."""
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-w", "-ffp-contract=off", "-fPIC", "-c", *options, "-I", HERE,
               "-I", os.path.join(ROOT, "src"), *(os.path.join(HERE, s) for s in sources)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else next((x for x in done.stderr.splitlines() if "error" in x), "no reason")


def run_test(program, library, folder):
    """The first complaint of the test, at which it is stopped; None: it passes."""
    env = dict(os.environ, LD_PRELOAD=library)
    with subprocess.Popen([program], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace", cwd=folder) as test:
        timer = threading.Timer(SECONDS, test.kill)
        timer.start()
        try:
            for line in test.stderr:
                if not re.match(r"\s*$|\[=+\]|\[ +(RUN|OK|PASSED) +\]", line):
                    test.kill()
                    return re.sub(r"^\[  ERROR   \] --- ", "", line).strip()[:60]
        finally:
            timer.cancel()
        status = test.wait()
    return None if status == 0 else "never ends" if status == -9 else f"status {status}"


def judge(mutant, text, build, objects):
    """The test that finds the mutant and its first complaint; or that it survives."""
    with tempfile.TemporaryDirectory() as folder:
        library, error = compile_mutant(mutant, text, folder, objects)
        if not library:
            return "wrong", f"does not compile: {error}"
        for test in TESTS.get(mutant.file, OTHERS):
            program = os.path.join(build, "bin", "test_gpu_" + test)
            if not os.path.exists(program):
                sys.exit(f"{program} is not there: build it first")
            complaint = run_test(program, library, folder)
            if complaint:
                return "found", f"{test}: {complaint}"
    return "survived", ""


def check_control(objects, build):
    """A test passes on a library of kernels without a mistake, so that what fails is the mutant's doing."""
    control = Mutant("control", "")
    control.file = "gpu_forward.h"
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(KERNELS, control.file), encoding="utf-8") as f:
        library, problem = compile_mutant(control, f.read(), folder, objects)
        return problem or run_test(os.path.join(build, "bin", "test_gpu_offsets"), library, folder)


def keep(log, key, verdict):
    with open(log, "a", encoding="utf-8") as f:
        f.write("\t".join((key, *verdict)).replace("\n", " ") + "\n")


def main():
    if "-h" in sys.argv or "--help" in sys.argv or len(sys.argv) < 2:
        print(__doc__.strip())
        return 0 if len(sys.argv) > 1 else 2
    mutants = read_mutants()
    edits, bad = {}, 0
    for m in mutants:
        edits[m.name], problem = m.text()
        if problem:
            print(f"{m.where}: {m.name}: {problem}")
            bad += 1
    if bad:
        return 1
    kernels = collections.Counter(m.file for m in mutants)
    if sys.argv[1] == "--check":
        print(f"{len(mutants)} mutants: " + ", ".join(f"{n} of {f}" for f, n in sorted(kernels.items())))
        return 0
    build, names = os.path.abspath(sys.argv[1]), tuple(sys.argv[2:])
    if names:
        mutants = [m for m in mutants if m.name.startswith(names)]
    objects = tempfile.TemporaryDirectory()
    log, known = os.path.join(build, "mutants.log"), {}
    if os.path.exists(log):
        with open(log, encoding="utf-8") as f:
            for line in f:
                key, verdict, why = line.rstrip("\n").split("\t")
                known[key] = verdict, why
    counts = collections.Counter()
    unexplained = 0
    problem = check_control(objects.name, build)
    if problem:
        sys.exit(f"a test fails without a mutant: {problem}")
    for m in mutants:
        key = hashlib.sha256((state(m.file) + m.file + edits[m.name]).encode()).hexdigest()
        if key not in known:
            known[key] = judge(m, edits[m.name], build, objects.name)
            keep(log, key, known[key])
        verdict, why = known[key]
        counts[verdict] += 1
        odd = verdict == "wrong" or (verdict == "survived") != bool(m.reason)
        unexplained += odd
        print(f"{m.name:44s} {verdict:8s} {why or m.reason or 'no test finds it, and no reason is given'}"
              + (", though it has a reason to survive" if verdict == "found" and m.reason else ""), flush=True)
    total = sum(counts.values())
    print(f"{total} mutants: {counts['found']} found, {counts['survived']} survived, {counts['wrong']} wrong; "
          f"{unexplained} without an explanation")
    return 0 if total and not unexplained and counts["found"] >= 0.95 * total else 1


if __name__ == "__main__":
    sys.exit(main())
