# What a run needs is said before it begins; a run that does not fit is refused.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
numbers() { sed -E 's/(about) [0-9.e+]+ (ms|s|min|h|days)/\1 T/; s/[0-9]+ %/N %/g; s/ +[0-9.]+ [KMGT]iB$/ N/; s/[0-9.]+ [KMGT]iB/N/g'; }
tessera train --preset tiny --dry-run | numbers
tessera train --preset tiny --dry-run --json | grep -c '"total"'
tessera train --preset 14b --data shapes --frames 80 --height 960 --width 960 --dry-run 2>err | numbers
numbers <err
tessera train --preset 14b --frames 80 --height 960 --width 960 --out run 2>&1 | numbers
ls
echo "== what fits, and how long it takes"
python3 - <<'END'
import json, re, subprocess, sys
run = lambda *more: subprocess.run(["tessera", "train", "--preset", "small", "--dry-run", "--json", *more], capture_output=True, text=True)
predicted = json.loads(run().stdout)["predicted"]
assert 0 < predicted["linear_ms"] < predicted["step_ms"] and predicted["run_s"] > 1500 * 0.001 * predicted["step_ms"], predicted
batch = 64
while (got := run("--batch", str(batch))).returncode == 0:
    batch *= 2
sentence = json.loads(got.stdout)["error"]["message"]
options = re.search(r"what fits:((?: --[a-z]+(?: [a-z0-9]+)?)+) \(", sentence)
assert options, sentence
words = options[1].split()
if "--batch" not in words:
    words = ["--batch", str(batch)] + words
assert run(*words).returncode == 0, (sentence, words)
print("the first of the options that fit does")
END
