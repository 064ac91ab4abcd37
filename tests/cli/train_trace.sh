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
play --trace-ranks 2 --trace-rank all --trace-together 1 --ranks-context 1 --trace-out ranks
tessera simulate --trace ranks/rank0.json --trace ranks/rank1.json --cluster a100-80 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["ranks"], r["unmatched_calls"], [f["rank"] for f in r["files"]], r["step_ms"] >= max(f["compute_ms"] for f in r["files"]) > 0)'
tessera train $small --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out ranks --json | python3 -c '
import json, sys
print([t["trace"] for t in json.load(sys.stdin)["traces"]])'
# Ranks of a node at the same time, each in a process: the same calls as in turn; nodes of the cluster apart.
cores=$(tessera info --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["machine"]["cores_usable"])')
tessera train $small --trace-ranks 3 --batch 3 --trace-rank all --ranks-context 1 --trace-out at-once --json |
    CORES=$cores python3 -c '
import json, os, sys
traces = json.load(sys.stdin)["traces"]
most = min(3, int(os.environ["CORES"]))
want = {1: [1, 1, 1], 2: [2, 2, 1], 3: [3, 3, 3]}[most]
print([t["rank"] for t in traces], [t["together"] for t in traces] == want, all(t["step_ms"] > 0 for t in traces))'
tessera train $small --trace-ranks 3 --batch 3 --trace-rank all --trace-together 1 --ranks-context 1 --trace-out one-by-one >/dev/null
python3 -c '
import json
def calls(path):
    return [(e["name"], e["args"]["sent"], e["args"]["received"]) for e in json.load(open(path))["traceEvents"]]
print(all(calls(f"at-once/rank{r}.json") == calls(f"one-by-one/rank{r}.json") for r in range(3)))'
mkdir -p blocked/rank1.json
tessera train $small --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out blocked; echo "exit $?"
# Ctrl-C: nothing is left running, and no file is half written.
timeout --preserve-status -s INT 1 tessera train --preset small --frames 8 --height 64 --width 64 --batch 4 -q --trace-ranks 2 --trace-rank all \
    --ranks-context 1 --trace-out stopped; echo "exit $?"
ls stopped
try() { tessera train $small "$@" || echo "exit $?"; }
try --trace-out x.json
try --trace-ranks 4
try --trace-ranks 4 --trace-out x.json
try --trace-ranks 4 --trace-rank one --cluster h100 --trace-out x.json
try --trace-ranks 2 --trace-rank all --ranks-context 1 --trace-out no/such/folder
try --trace-ranks 4 --trace-rank 4 --cluster h100 --trace-out x.json
try --trace-ranks 4 --cluster h100 --trace-out x.json --out run
try --trace-ranks 3 --ranks-context 1 --trace-out x.json
try --trace-ranks 2 --trace-together 2 --ranks-context 1 --trace-out x.json
try --trace-together 2
try --trace-ranks 2 --trace-rank all --trace-together 3 --ranks-context 1 --trace-out x
try --trace-ranks 2 --trace-rank all --trace-together 2 -j 1000 --ranks-context 1 --trace-out x 2>&1 | sed 's/: [0-9]* core.*/: N cores/'
try --trace-ranks 4 --ranks-context 1 --trace-out no/such/folder/x.json
ls x.json 2>/dev/null
exit 0
