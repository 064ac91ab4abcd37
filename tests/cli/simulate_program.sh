# A PyTorch program that was played (a trace of version 2): time by class, memory that does not fit, JSON, wrong usage.
cat >p.json <<'JSON'
{"otherData": {"tessera_trace": 2, "rank": 0, "ranks": 16, "peak_bytes": 91000000000, "memory": {"parameters": 16000000000,
 "activations": 75000000000}, "warnings": ["train.py:9: item reads a value that came from another rank"]},
"traceEvents": [
{"name": "c10d::_allgather_base_", "cat": "communication", "ph": "X", "args": {"op": "all_gather", "group": [0, 16, 1], "in_bytes": 8388608, "out_bytes": 134217728, "dtype": "bfloat16", "reads": [0], "writes": [1]}},
{"name": "mm", "cat": "compute", "ph": "X", "args": {"shapes": [[8192, 8192], [8192, 8192]], "out": [[8192, 8192]], "dtype": "bfloat16", "flop": 1099511627776, "bytes": 402653184, "reads": [1], "writes": [2], "module": "layers.0.up"}},
{"name": "c10d::allreduce_", "cat": "communication", "ph": "X", "args": {"op": "all_reduce", "ranks": [0, 1, 8, 9], "in_bytes": 134217728, "out_bytes": 134217728, "dtype": "bfloat16", "reads": [2], "writes": [2], "request": 1}},
{"name": "wait", "cat": "wait", "ph": "X", "args": {"request": 1, "reads": [], "writes": []}},
{"name": "gelu", "cat": "compute", "ph": "X", "args": {"shapes": [[8192, 8192]], "out": [[8192, 8192]], "dtype": "bfloat16", "flop": 0, "bytes": 268435456, "reads": [2], "writes": [3], "module": "layers.0"}}
]}
JSON
tessera simulate --trace p.json --cluster h100
tessera simulate --trace p.json --cluster h100 --set system.era=torchtitan-2025 --timeline t.json >/dev/null
"$CASES/../../tools/timeline_check.py" t.json
python3 -c 'import json; print([e["args"]["name"] for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "M"])'
tessera simulate --trace p.json --cluster h200 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
f = r["files"][0]
print(f["source"], f["fits"], f["largest_part"], f["flop"], r["software"], r["notes"])
assert f["classes_ms"]["gemm"] > 1 and sum(r["critical_ms"].values()) > 1'
try() { tessera simulate "$@" || echo "exit $?"; }
try --trace p.json --cluster h100 --set layout.tp=2
try --trace p.json --cluster h100 --set system.era=torchtitan-1999
try --trace p.json --as-recorded
sed 's/"rank": 0/"rank": 16/' p.json >bad.json && try --trace bad.json --cluster h100
sed 's/\[0, 16, 1\]/[0, 17, 1]/' p.json >bad.json && try --trace bad.json --cluster h100
sed 's/"reads": \[2\]/"reads": [5]/' p.json >bad.json && try --trace bad.json --cluster h100
sed 's/"tessera_trace": 2/"tessera_trace": 3/' p.json >bad.json && try --trace bad.json --cluster h100
head -c 900 p.json >bad.json && try --trace bad.json --cluster h100
