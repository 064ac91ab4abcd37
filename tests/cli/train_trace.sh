# The trace recorder: a step of one rank of many as a trace that the simulator replays.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 4 -j 1 -q"
play() { tessera train $small "$@" | sed -E 's/[0-9.]+ ms/N ms/'; echo "exit ${PIPESTATUS[0]}"; }
play --trace-ranks 4 --trace-rank 3 --ranks-context 2 --cluster h100 --strategy fractional --trace-out t.json
play --trace-ranks 2 --ranks-context 1 --trace-out two.json
tessera simulate --trace t.json --cluster a100-80 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
calls = r["calls"]
# Two layers there and back: rows out, and the output back, forward and backward; gradients to their owners.
print(r["rank"], r["ranks"], calls["alltoall"]["calls"] >= 8, calls["alltoall"]["bytes"] > 0, r["step_ms"] > r["compute_ms"] > 0)'
python3 -c '
import json
events = json.load(open("two.json"))["traceEvents"]
print({tuple(e["args"]["group"]) for e in events if e["args"]["sent"]})'
# Every rank in turn, and all of them together.
play --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out ranks
tessera simulate --trace ranks/rank0.json --trace ranks/rank1.json --cluster a100-80 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["ranks"], r["unmatched_calls"], [f["rank"] for f in r["files"]], r["step_ms"] >= max(f["compute_ms"] for f in r["files"]) > 0)'
tessera train $small --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out ranks --json | python3 -c '
import json, sys
print([t["trace"] for t in json.load(sys.stdin)["traces"]])'
try() { tessera train $small "$@" || echo "exit $?"; }
try --trace-out x.json
try --trace-ranks 4
try --trace-ranks 4 --trace-out x.json
try --trace-ranks 4 --trace-rank one --cluster h100 --trace-out x.json
try --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out no/such/folder
try --trace-ranks 4 --trace-rank 4 --cluster h100 --trace-out x.json
try --trace-ranks 4 --cluster h100 --trace-out x.json --out run
try --trace-ranks 3 --ranks-context 1 --trace-out x.json
try --trace-ranks 4 --ranks-context 1 --trace-out no/such/folder/x.json
ls x.json 2>/dev/null
exit 0
