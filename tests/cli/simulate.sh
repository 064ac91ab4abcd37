# A shipped scenario, changed from the command line; JSON with its members; wrong settings refused.
tessera simulate gpt-175b-96 --price 2.5 --steps 1000 | sed 's/[0-9.e+]\{3,\}/N/g; s/  *[0-9.]* %/ N %/; s/ \+/ /g; s/N % MFU, .*% HFU/N % MFU, N % HFU/' | grep -v '^ host'
tessera simulate gpt-175b-96 --set layout.tp=4 --set layout.gpus=48 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["step_ms"] > 0 and r["tokens_per_s"] > 0 and r["memory_gib"] > 0
assert abs(sum(r["breakdown"].values()) / r["step_ms"] - 1) < 1e-6, (r["breakdown"], r["step_ms"])
print(r["fits"], r["scenario"]["layout.tp"], sorted(r["breakdown"]))'
tessera simulate llama3-405b --explain | grep -c '^layer '
tessera simulate llama3-405b --set layout.tp=1 --set layout.gpus=144 | grep 'does not fit' | sed 's/[0-9]\+ of/N of/'
try() { tessera simulate "$@" || echo "exit $?"; }
try gpt-175b-95
try gpt-175b-96 --set layout.tp
try gpt-175b-96 --set layout.tq=3
try gpt-175b-96 --set layout.tp=7
try gpt-175b-96 --set system.cluster=
printf '{"schema": 1, "model": {"name": "gpt-22b"}, "layout": {"tp": "x"}}' >s.json && try s.json
