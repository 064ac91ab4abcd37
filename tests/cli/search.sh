# All combinations of settings: the best, why the second lost, fronts; what is refused; a search that is resumed.
digits() {
    python3 -c '
import re, sys
for line in sys.stdin:
    print(re.sub(r"(?<![\w.-])\d+\.\d+(e[+-]\d+)?", lambda m: f"{float(m[0]):.3g}", line), end="")'
}
over="--over layout.tp=2,4,8 --over layout.pp=6,12 --over training.recompute=none,selective,full"
tessera simulate gpt-175b-96 --search $over --gpus 48,96,192 --price 2.5 | digits
tessera simulate gpt-175b-96 --search $over --json >quick.json
tessera simulate gpt-175b-96 --search $over --exhaustive -j 2 --json >slow.json
tessera simulate gpt-175b-96 --search $over --checkpoint c.json --json >first.json
tessera simulate gpt-175b-96 --search $over --checkpoint c.json --json >again.json
python3 -c '
import json, subprocess
quick, slow, first, again = (json.load(open(n + ".json")) for n in ("quick", "slow", "first", "again"))
for key in ("combinations", "valid", "feasible", "best", "top", "pareto", "why"):
    assert quick[key] == slow[key] == first[key] == again[key], key
assert again["resumed"] == again["valid"] and first["resumed"] == 0
best = quick["best"]
one = json.loads(subprocess.check_output(["tessera", "simulate", "gpt-175b-96", "--json"]
                 + [x for k, v in best["settings"].items() for x in ("--set", f"{k}={v}")]))
assert one["step_ms"] == best["step_ms"] and one["fits"]
assert abs(sum(best["breakdown"].values()) / best["step_ms"] - 1) < 1e-9
print(quick["combinations"], quick["valid"], quick["feasible"], best["settings"], sorted(quick["why"]))'
try() { tessera simulate "$@" || echo "exit $?"; }
try gpt-175b-96 --search --over layout.tq=1,2
try gpt-175b-96 --search --over layout.tp
try gpt-175b-96 --search --over tp=2 --gpus 48,x
try gpt-175b-96 --search --over tp=2 --by cost
try gpt-175b-96 --search --deadline 3
try gpt-175b-96 --over tp=2
try gpt-175b-96 --search --over tp=4,8 --checkpoint c.json
try gpt-175b-96 --search $over --memory-limit 10 2>&1 | digits
try gpt-175b-96 --search $over --steps 1000 --deadline 1 2>&1 | digits
echo '{"schema": 1' >c.json
try gpt-175b-96 --search --over tp=4,8 --checkpoint c.json
try gpt-175b-96 --search --set layout.schedule=x.csv
