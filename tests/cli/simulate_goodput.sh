# Failures and checkpoints: text, JSON, and the run with them; options that need --failures.
digits() {
    python3 -c '
import re, sys
for line in sys.stdin:
    print(re.sub(r"(?<![\w-])\d+(\.\d+)?(e[+-]\d+)?", lambda m: f"{float(m[0]):.3g}", line), end="")'
}
tessera simulate gpt-175b-8192 --failures --steps 95000 --price 2 | grep -A5 ^goodput | digits
tessera simulate gpt-175b-8192 --steps 95000 --price 2 --json >a.json
tessera simulate gpt-175b-8192 --failures --steps 95000 --price 2 --mtbf 10000 --write 30 --restart 900 --every 1200 \
    --html p.html --json >b.json
python3 -c '
import json
a, b = (json.load(open(f)) for f in ("a.json", "b.json"))
g = b["goodput"]
assert "goodput" not in a and g["interval_s"] == 1200 and g["checkpoint_s"] == 30 and g["restart_s"] == 900
assert abs(g["failure_hours"] - 10000 / 8192) < 1e-9
for key in ("hours", "gpu_hours", "price"):
    assert abs(b["run"][key] * g["goodput"] / a["run"][key] - 1) < 1e-9, key
assert a["step_ms"] == b["step_ms"]
lost = g["lost_to_checkpoints"] + g["lost_to_restarts"] + g["lost_to_repeated_steps"]
assert abs(lost + g["goodput"] - 1) < 1e-9
print(round(g["goodput"], 3))'
grep -c 'goodput, %' p.html
try() { tessera simulate "$@" || echo "exit $?"; }
try gpt-175b-8192 --mtbf 1000
try gpt-175b-8192 --failures --mtbf 0
try gpt-175b-8192 --failures --search
try wan2.1-14b-sample --failures
