#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranks.py - training under a launcher: the losses of one rank, and failures that end all ranks.

    ranks.py --tessera build/release/bin/tessera --mpirun mpirun [--case NAME]

Whatever fails, and on whichever rank: the command ends with a code that is not 0 within 10 seconds
(and twice the time that a run of one step takes here and now), says one sentence on stderr (or leaves
that to the launcher, where a rank was killed), and the last checkpoint can be resumed. Exit 77: every
case that was to run was skipped.
"""
import argparse
import csv
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 10
OPTIONS = ["--preset", "tiny", "--frames", "2", "--height", "16", "--width", "16", "--batch", "4",
           "--warmup", "3", "--validate-clips", "2", "--seed", "5", "--quiet", "-j", "1"]
DSV = ["--attention", "dsv", "--density", "0.25", "--dispatch", "sparse", "--switch", "step", "--switch-step", "4",
       "--profile-every", "3", "--check-every", "3", "--cube", "2x2x2"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_plm_rsh_agent": "",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "ASAN_OPTIONS": "detect_leaks=0"}


class Skipped(Exception):
    """A case that cannot be tried here, and why."""


class Case:
    """A folder of its own, and the command."""

    def __init__(self, args, root):
        self.args = args
        self.root = root
        root.mkdir()

    def train(self, *more, tessera=None):
        return [str(tessera or self.args.tessera), "train", *OPTIONS, *more]

    def launch(self, ranks, *more):
        return [self.args.mpirun, "-n", str(ranks), *self.train(*self.context(), *more)]

    def context(self):
        return ["--ranks-context", str(self.args.contexts[-1]), "--cluster", "h100"]

    def run(self, command):
        """Must work."""
        done = subprocess.run(command, env=ENVIRONMENT, cwd=self.root, timeout=300, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")

    def fails(self, command, sentence):
        """Must fail soon, and say it once."""
        begin = time.monotonic()
        done = subprocess.run(command, env=ENVIRONMENT, cwd=self.root, timeout=300, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        said = [line for line in done.stderr.splitlines() if line.startswith("tessera")]
        self.in_time(begin, f"{' '.join(command)}: exit {done.returncode}", done.returncode)
        if len(said) != 1 or not re.fullmatch("tessera train: " + sentence, said[0]):
            sys.exit(f"said {said}, must say once: {sentence}\n{done.stderr}")

    def in_time(self, begin, what, code):
        """A failure, within 10 seconds and twice the time that a run of one step takes here and now."""
        took = time.monotonic() - begin
        if took > LIMIT + 2 * self.args.once: # others came meanwhile?
            self.args.once = self.once()
        if code == 0 or took > LIMIT + 2 * self.args.once:
            sys.exit(f"{what} after {took:.1f} s")

    def once(self):
        """Seconds of a run of one step."""
        begin = time.monotonic()
        self.run(self.launch(2, "--steps", "1", "--out", "once"))
        shutil.rmtree(self.root / "once")
        return time.monotonic() - begin

    def losses(self, out):
        with open(self.root / out / "metrics.csv", newline="") as f:
            return [float(row["loss"]) for row in csv.DictReader(f)]

    def goes_on(self, out):
        """The last checkpoint is complete: a resumed run does two more steps."""
        folders = sorted((self.root / out / "checkpoints").glob("step-*"))
        if not folders or not (folders[-1] / "state.json").exists():
            sys.exit(f"{out}: no complete checkpoint")
        step = int(folders[-1].name[5:])
        self.run(self.launch(2, "--out", out, "--resume", "--steps", str(step + 2)))


def compare(want, got, what):
    if len(want) != len(got) or any(abs(b / a - 1) > 1e-4 for a, b in zip(want, got)):
        sys.exit(f"{what}: losses differ: {want[-1]} and {got[-1]}")


# ---- what must work ---------------------------------------------------------------------------------------

def losses(case):
    """One rank and two, by clips and by tokens; resumed on another number."""
    for kind, options in (("dense", []), ("dsv", DSV)):
        steps = ["--steps", "10", "--checkpoint-every", "5", *options]
        case.run(case.train(*steps, "--out", kind))
        want = case.losses(kind)
        for context in case.args.contexts:
            out = f"{kind}-{context}"
            case.run([case.args.mpirun, "-n", "2",
                      *case.train(*steps, "--ranks-context", str(context), "--out", out)])
            compare(want, case.losses(out), out)
        shutil.rmtree(case.root / f"{kind}-1/checkpoints/step-000010")
        case.run(case.train("--out", f"{kind}-1", "--resume"))
        compare(want, case.losses(f"{kind}-1"), f"{kind}, resumed alone")


# ---- what must fail ---------------------------------------------------------------------------------------

def killed(case):
    """A rank dies while the others train."""
    process = subprocess.Popen(
        [case.args.mpirun, "-n", "2", "bash", "-c",
         'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@"', "-",
         *case.train(*case.context(), "--steps", "1000000", "--checkpoint-every", "10", "--validate-every", "0", "--out", "run")],
        env=ENVIRONMENT, cwd=case.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not list(case.root.glob("run/checkpoints/step-*")):
        if process.poll() is not None:
            sys.exit(f"killed: ended by itself: {process.communicate()[0]}")
        time.sleep(0.05)
    os.kill(int((case.root / "pid.1").read_text()), signal.SIGKILL)
    begin = time.monotonic()
    said = process.communicate(timeout=300)[0] # MPICH's mpiexec speaks on stdout
    case.in_time(begin, f"killed: exit {process.returncode}", process.returncode)
    if not said.strip():
        sys.exit("killed: nothing was said")
    for rank in (0, 1): # mpirun may end a moment before the ranks that it killed
        while running(int((case.root / f"pid.{rank}").read_text())):
            case.in_time(begin, f"killed: rank {rank} still runs", process.returncode)
            time.sleep(0.05)
    case.goes_on("run")


def running(pid):
    try:
        return re.search(r"^State:\s+[RSD]", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return None


def disk(case):
    """The disk is full."""
    if subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skipped("no file system can be mounted here")
    (case.root / "disk").mkdir()
    inside = ["unshare", "-rm", "bash", "-c",
              'mount -t tmpfs -o size=3m none disk || exit 9; "$@"; code=$?; cp -r disk/run kept; exit $code', "-"]
    case.fails(inside + case.launch(2, "--steps", "1000", "--checkpoint-every", "1", "--keep", "0",
                                    "--validate-every", "0", "--out", "disk/run"),
               r"disk/run/\S+: cannot write: No space left on device")
    left = [p.name for p in (case.root / "kept/checkpoints").iterdir() if not p.name.startswith("step-0000")]
    if left:
        sys.exit(f"disk: {left} is half made")
    case.goes_on("kept")


def checkpoint(case):
    """A checkpoint that is wrong, or another one on one rank."""
    for out in ("a", "b"):
        case.run(case.train("--steps", "2", "--out", out, "--seed", out == "a" and "1" or "2"))
    for rank, out in ((0, "a"), (1, "b")):
        shutil.copytree(case.root / out, case.root / f"rank.{rank}" / "run")
    inside = ["bash", "-c", 'cd rank.${OMPI_COMM_WORLD_RANK:-$PMI_RANK} && "$@"', "-"]
    resume = case.train(*case.context(), "--out", "run", "--resume", "--steps", "4", "--seed", "1")
    case.fails([case.args.mpirun, "-n", "2", *inside, *resume],
               "rank 1 has another set of weights than rank 0")
    shutil.rmtree(case.root / "rank.1" / "run" / "checkpoints")
    case.fails([case.args.mpirun, "-n", "2", *inside, *resume],
               "rank 1 has another checkpoint to start from than rank 0")
    weights = case.root / "a/checkpoints/step-000002/diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    case.fails(case.launch(2, "--out", "a", "--resume", "--steps", "4"), r"a/\S+/\S+\.safetensors: .*")


def build(case):
    """One rank runs another build: the same code, but for the length of an instruction that does nothing."""
    other = case.root / "bin" / "tessera"  # which looks for libraries in ../lib
    other.parent.mkdir()
    (case.root / "lib").symlink_to(case.args.tessera.resolve().parent.parent / "lib")
    code = case.args.tessera.read_bytes()
    idle = b"\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00"
    if code.count(idle) == 0:
        raise Skipped("no idle instruction to change")
    other.write_bytes(code.replace(idle, idle[:-1] + b"\x01", 1))
    other.chmod(0o755)
    case.fails([case.args.mpirun, "-n", "1", *case.train(*case.context(), "--out", "run"), ":",
                "-n", "1", *case.train(*case.context(), "--out", "run", tessera=other)],
               "rank 1 has another build of tessera than rank 0; .*")


def options(case):
    """One rank has other options, or lacks a file."""
    def both(first, second):
        return [case.args.mpirun, "-n", "1", *case.train(*case.context(), *first), ":",
                "-n", "1", *case.train(*case.context(), *second)]
    case.fails(both(["--out", "run"], ["--out", "run", "--lr", "0.1"]), "rank 1 has another set of options than rank 0")
    case.fails(both(["--out", "run"], ["--out", "run", "--data", "missing/"]), r"rank 1: missing/?: .*")
    case.fails(case.launch(2, "--out", "run", "--ranks-context", "3"),
               r"ranks_context is 3, must divide the 2 ranks")


STRATEGIES = ["auto", "contiguous", "db-sp", "refined", "fractional"]
SIZES = ["--sizes", "2x16x16:3,4x16x24:2,4x32x32", "--batch", "3", "--accumulate", "2"] # the last of each option counts
EXACT = {"dense": ["--frames", "4"], "dsv": ["--frames", "4", *DSV], "sizes": SIZES, "sizes-dsv": [*SIZES, *DSV]}


def exact_command(case, kind, ranks, steps, out, *more):
    """Clips of several sizes are cut over ranks."""
    sizes = kind.startswith("sizes")
    options = case.train("--exact-ranks", "--steps", str(steps), "--checkpoint-every", str(steps // 4), *EXACT[kind],
                         "--out", out, *more)
    for name in ("--frames", "--height", "--width") if sizes else ():
        at = options.index(name)
        del options[at:at + 2]
    return [case.args.mpirun, "-n", str(ranks), *options]


def at_work(folder):
    """Whether a process works in a folder: ranks may outlive the launcher for a moment."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve() == folder.resolve() and running(entry.name):
                return True
        except OSError:
            continue
    return False


def exact_hash(case, out, steps):
    return folder_hash(case.root / out / "checkpoints" / f"step-{steps:06}")


def same_hashes(kind, hashes):
    if len(set(hashes.values())) != 1:
        sys.exit(f"{kind}: checkpoints differ: {hashes}")


def exact(case):
    """--exact-ranks: one hash of the checkpoint on some numbers of ranks, of clips of one size and of several."""
    for kind, numbers in (("dense", (1, 3)), ("dsv", (1, 2)), ("sizes-dsv", (1, 2, 4))):
        hashes = {}
        for ranks in numbers:
            strategy = STRATEGIES[ranks] if ranks <= 2 else "fractional" # the model has two heads
            case.run(exact_command(case, kind, ranks, 8, f"{kind}-{ranks}", "--strategy", strategy))
            hashes[ranks] = exact_hash(case, f"{kind}-{ranks}", 8)
        same_hashes(kind, hashes)


def exact_sample(case):
    """sample --exact-ranks: the same latents on any number of ranks, with guidance and without."""
    case.run(case.train("--steps", "8", *DSV, "--out", "run"))
    for guidance in ("1", "4"):
        clips = set()
        for ranks in (1, 2, 3):
            out = f"{guidance}-{ranks}.npy"
            case.run([case.args.mpirun, "-n", str(ranks), str(case.args.tessera), "sample", "run", "--exact-ranks",
                      "--prompt", "a red disc", "--prompt", "a blue square", "--steps", "4", "--guidance", guidance,
                      "-j", "1", "-q", "-o", out])
            clips.add((case.root / out).read_bytes())
        if len(clips) != 1:
            sys.exit(f"guidance {guidance}: clips differ")


def exact_all(case):
    """--exact-ranks: one hash of the checkpoint for 1 to 8 ranks and every strategy, also after a SIGKILL and a
    resume on another number of ranks."""
    for kind in EXACT:
        hashes = {}
        for ranks in range(1, 9):
            strategy = STRATEGIES[ranks] if ranks <= 2 else ["auto", "fractional"][ranks % 2]
            out = f"{kind}-{ranks}"
            case.run(exact_command(case, kind, ranks, 20, out, "--strategy", strategy))
            hashes[f"{ranks} ranks, {strategy}"] = exact_hash(case, out, 20)
        if not kind.startswith("sizes"):
            out = f"{kind}-groups"
            case.run(exact_command(case, kind, 4, 20, out, "--ranks-context", "2"))
            hashes["4 ranks in groups of 2"] = exact_hash(case, out, 20)
        out = f"{kind}-killed"
        process = subprocess.Popen(exact_command(case, kind, 3, 20, out, "--strategy", "fractional"), env=ENVIRONMENT,
                                   cwd=case.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        while process.poll() is None and not list((case.root / out / "checkpoints").glob("step-*")):
            time.sleep(0.05)
        if process.poll() is not None:
            sys.exit(f"{out}: ended before it was killed")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while at_work(case.root):
            time.sleep(0.1)
        case.run([case.args.mpirun, "-n", "5", str(case.args.tessera), "train", "--out", out, "--resume", "--quiet",
                  "-j", "1", "--strategy", "fractional"])
        hashes["SIGKILL on 3 ranks, resumed on 5"] = exact_hash(case, out, 20)
        same_hashes(kind, hashes)


def folder_hash(folder):
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return total.hexdigest()


CASES = {f.__name__: f for f in (losses, killed, disk, checkpoint, build, options, exact, exact_sample, exact_all)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", type=pathlib.Path, required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--contexts", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    args.tessera = args.tessera.resolve()
    if not shutil.which(args.mpirun):
        print("skipped: there is no mpirun")
        return 77
    args.once = 0 # measured where 10 seconds do not suffice
    root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-ranks-"))
    names, skipped = args.case or [name for name in CASES if name != "exact_all"], 0
    try:
        for name in names:
            begin = time.monotonic()
            try:
                CASES[name](Case(args, root / name))
                print(f"{name}: {time.monotonic() - begin:.1f} s")
            except Skipped as why:
                skipped += 1
                print(f"{name}: skipped, {why}")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 77 if skipped == len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
