# The line of train and sample on a terminal of 80 columns: every step is on it, inner calls are not, and it fits.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
python3 -c 'import pty; pty.openpty()' 2>/dev/null ||
    { echo "no pseudo-terminal can be opened here" >&2; exit 77; }
# Without a terminal: a line every 10 seconds. It is begun first, because it takes so long, and ends with the first line.
tessera train --preset tiny --frames 2 --height 16 --width 16 --batch 1 --steps 1000000 --validate-every 0 --out piped \
    -j 1 >/dev/null 2>piped.log &
piped=$!
TERM=xterm python3 - <<'END'
import os, re, subprocess, sys

def lines(*command):
    """The states of the line, and the plain lines between them."""
    run = subprocess.run([sys.executable, os.environ["CASES"] + "/terminal.py", "--columns", "80", "tessera", *command],
                         stdout=subprocess.PIPE)
    text = run.stdout.decode()
    assert run.returncode == 0, text
    return [part for part in re.split(r"[\r\n]+", text.replace("\033[K", "")) if part]

work = r"step \d+/\d+  (validation|preview samples|checkpoint), \d+ %"
number, rate, left = r"\d+(\.\d+)?", r"\d+(\.\d)?[kM]?", r"\d+:\d\d(:\d\d)? left"
for preset, steps, extra in (("tiny", 12, ["--attention", "window", "--density", "0.25", "--switch-step", "4"]),
                             ("small", 3, [])):
    shown = lines("train", "--preset", preset, "--steps", str(steps), "--batch", "1", "--validate-every", "2",
                  "--validate-clips", "4", "--sample-every", "6", "--sample-steps", "2", "--cache", "none", "--out", preset, *extra)
    banner = [s.split()[0] for s in shown if re.match(r"[a-z]+ {5,}", s)]
    assert banner == ["model", "data", "steps", "machine", "folder"], shown
    line = [s for s in shown if not re.match(r"tessera train: |[a-z]+ {5,}", s)]
    density = f" +density {number}" if extra else ""
    step = rf"(step )?(\d+)/{steps} +loss {number} +mean {number}( (falling|flat|rising))? +{number} ms/step +{rate} tok(ens)?/s{density} +{left}"
    for state in line:
        assert re.fullmatch(step, state) or re.fullmatch(work, state), state
        assert len(state) <= 79, state
    done = [int(m[2]) for m in (re.fullmatch(step, s) for s in line) if m]
    assert done == list(range(1, steps + 1)), done
    forms = {"step" in s for s in line if re.fullmatch(step, s)}
    assert len(forms) == 1, line
    print(preset, "every step, nothing else")

shown = lines("sample", "tiny", "--steps", "5", "--count", "3", "--batch", "2", "-o", "clip.npy")
expected = [f"clip{clips} of 3  step {k}/5" for clips in ("s 1-2", " 3") for k in range(1, 6)]
assert [s.split("  ")[0] + "  " + s.split("  ")[1] for s in shown] == expected, shown
for state in shown:
    assert len(state) <= 79, state
    if "step 1/" not in state:
        assert re.search(rf"  {number} ms/step  {rate} tok/s  density {number}  {left}$", state), state
print("sample every step, nothing else")
END
tessera train --preset tiny --frames 2 --height 16 --width 16 --batch 1 --steps 2 --validate-every 0 --out parts -v 2>&1 >/dev/null |
    grep -cE 'step 1 took [0-9.]+ ms: attention [0-9.]+, linear layers [0-9.]+, other [0-9.]+, optimiser [0-9.]+'
line='^tessera train: step [0-9]+/1000000  loss [0-9.]+  mean [0-9.]+ (falling|flat|rising)  .* left$'
for _ in {1..120}; do grep -qE "$line" piped.log && break; sleep 0.5; done
kill -TERM $piped # a command in the background of a shell ignores INT
wait
echo "== without a terminal"
grep -E "$line" piped.log | head -n 1 | wc -l
