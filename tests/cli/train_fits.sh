# A run that does not fit says what does, and the first of the options it names fits; and a dry run predicts the time.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
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
