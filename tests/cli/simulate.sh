# A shipped scenario, changed from the command line; JSON with its members; wrong settings refused.
# Numbers are compared to three digits: a simulation has no noise, but may be calibrated anew.
digits() {
    python3 -c '
import re, sys
for line in sys.stdin:
    print(re.sub(r"(?<![\w-])\d+(\.\d+)?(e[+-]\d+)?", lambda m: f"{float(m[0]):.3g}", line), end="")'
}
tessera simulate gpt-175b-96 --price 2.5 --steps 1000 | digits
tessera simulate gpt-175b-96 --set layout.tp=4 --set layout.gpus=48 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["step_ms"] > 0 and r["tokens_per_s"] > 0 and r["memory_gib"] > 0
assert abs(sum(r["breakdown"].values()) / r["step_ms"] - 1) < 1e-6, (r["breakdown"], r["step_ms"])
print(r["fits"], r["scenario"]["layout.tp"], sorted(r["breakdown"]))'
tessera simulate llama3-405b --explain | grep -c '^layer '
tessera simulate llama3-405b --set layout.tp=1 --set layout.gpus=144 | grep 'does not fit' | digits
try() { tessera simulate "$@" || echo "exit $?"; }
try gpt-175b-95
try gpt-175b-96 --set layout.tp
try gpt-175b-96 --set layout.tq=3
try gpt-175b-96 --set layout.tp=7
try gpt-175b-96 --set system.cluster=
printf '{"schema": 1, "model": {"name": "gpt-22b"}, "layout": {"tp": "x"}}' >s.json && try s.json
# Sparse attention from a density profile: half of the heads are dense, and contiguous heads put them together.
python3 -c '
print("step,layer,head,density")
for l in range(30):
    for h in range(12):
        print(f"1,{l},{h},{1.0 if h < 6 else 0.1}")' >p.csv
video="--set model.name=wan2.1-1.3b --set model.frames=81 --set model.height=480 --set model.width=832 --set layout.cp=2 --set layout.gpus=128 --set training.global_batch=64"
for method in contiguous db-sp; do tessera simulate wan2.1-14b-dsv-128 $video --density p.csv --method $method --json >$method.json; done
python3 -c '
import json
slow, fast = (json.load(open(f + ".json"))["step_ms"] for f in ("contiguous", "db-sp"))
print(f"step of contiguous heads {slow:.3g} ms, of balanced heads {fast:.3g} ms")'
tessera simulate wan2.1-14b-dsv-128 --density p.csv || echo "exit $?"
