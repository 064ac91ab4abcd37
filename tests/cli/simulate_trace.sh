# A traced rank on a cluster: its step as text and as JSON, and wrong usage.
cat >t.json <<'JSON'
{"otherData": {"tessera_trace": 1, "rank": 1, "ranks": 8},
"traceEvents": [
{"name": "alltoall", "ph": "X", "args": {"op": "alltoall", "traffic": "payload", "group": [0, 4, 1], "sent": 3145728, "received": 3145728, "peer": 1048576, "compute_ns": 2000000, "request": 1}},
{"name": "wait", "ph": "X", "args": {"op": "wait", "traffic": "payload", "group": [0, 4, 1], "sent": 0, "received": 0, "peer": 0, "compute_ns": 1000, "request": 1}},
{"name": "sum", "ph": "X", "args": {"op": "sum", "traffic": "payload", "group": [1, 2, 4], "sent": 8388608, "received": 8388608, "peer": 8388608, "compute_ns": 500000}}
]}
JSON
tessera simulate --trace t.json --cluster a100-80
tessera simulate --trace t.json --cluster h100 --compute-scale 0.1 --per-node 4 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert abs(r["step_ms"] - r["compute_ms"] - r["wait_ms"]) < 1e-9
assert abs(r["compute_ms"] - 0.1 * r["recorded_compute_ms"]) < 1e-9
print(r["rank"], r["ranks"], r["calls"]["sum"]["bytes"], sorted(r["calls"]))'
try() { tessera simulate "$@" || echo "exit $?"; }
try
try --trace t.json
try gpt-175b-96 --trace t.json --cluster h100
try gpt-175b-96 --cluster h100
try --trace no.json --cluster h100
try --trace t.json --cluster h101
try --trace t.json --cluster h100 --compute-scale 0
sed 's/"alltoall", "traffic"/"all", "traffic"/' t.json >bad.json && try --trace bad.json --cluster h100
# Several ranks: the n-th call of a group is the same call, and begins when the last member has come.
sed 's/"rank": 1, /"rank": 0, /; s/2000000/5000000/' t.json >r0.json
gzip -k r0.json
tessera simulate --trace r0.json.gz --trace t.json --cluster a100-80
tessera simulate --trace r0.json --trace t.json --cluster a100-80 --timeline both.json >/dev/null
"$CASES/../../tools/timeline_check.py" both.json
try --trace t.json --cluster h100 --slow-rank 1=2
tessera simulate --trace r0.json --trace t.json --cluster a100-80 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["ranks"], r["calls"], r["unpriced_calls"], [f["rank"] for f in r["files"]])
assert r["step_ms"] == max(f["step_ms"] for f in r["files"])
assert r["files"][1]["wait_ms"] > 2.9 > r["files"][0]["wait_ms"]'
cat >k.json <<'JSON'
{"distributedInfo": {"rank": 3, "world_size": 4}, "traceEvents": [
{"ph": "X", "cat": "kernel", "name": "ampere_sgemm", "pid": 0, "tid": 7, "ts": 100, "dur": 50.25, "args": {"device": 0, "stream": 7}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Reduce", "pid": 0, "tid": 20, "ts": 155, "dur": 40, "args": {"device": 0, "stream": 20, "Collective name": "reduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float", "Process Group Ranks": "[2, 3]"}},
{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 20, "ts": 200, "dur": 10, "args": {"device": 0, "stream": 20}}]}
JSON
tessera simulate --trace k.json --as-recorded
tessera simulate --trace k.json --trace t.json --cluster a100-80
try --trace t.json --trace t.json --cluster a100-80
try gpt-175b-96 --as-recorded
try --trace t.json --cluster a100-80 --params p.json
printf '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}' >cpu.json
try --trace cpu.json --as-recorded
