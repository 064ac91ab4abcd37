# The step event by event: files that the checker accepts, classes of ranks, critical path, options and mistakes.
digits() {
    python3 -c '
import re, sys
for line in sys.stdin:
    print(re.sub(r"(?<![\w-])\d+\.\d+", lambda m: f"{float(m[0]):.3g}", line), end="")'
}
check="$CASES/../../tools/timeline_check.py"
small="--set training.global_batch=8 --set model.layers=24"
tessera simulate gpt-175b-96 $small --timeline t.json --slow-rank 17=1.2 | sed -n '/^event/,$p' | digits
python3 "$check" t.json | sed 's/, end_ns.*//'
# The checker refuses a call that is missing, and events that overlap.
sed 's/"call":0,"op":"all_reduce"/"call":7777,"op":"all_reduce"/' t.json >bad.json
python3 "$check" bad.json 2>&1 | cut -d: -f1-2 | sed 's/[0-9+x]*$//'
python3 - <<'PY'
import json
file = json.load(open("t.json"))
first, second = [event for event in file["traceEvents"] if event.get("tid") == 1 and event["ph"] == "X"][:2]
first["dur"] = round(second["ts"] + second["dur"] / 2 - first["ts"], 3)
json.dump(file, open("bad.json", "w"))
PY
python3 "$check" bad.json 2>&1 | sed 's/at [0-9]* ns/at N ns/'
rm bad.json
tessera simulate gpt-175b-96 $small --timeline all.json.gz --timeline-ranks all --set layout.schedule=zb-v --json >all.out
python3 "$check" all.json.gz | sed 's/, end_ns.*//'
python3 - <<'PY'
import json
r = json.load(open("all.out"))
t = r["timeline"]
assert abs(sum(c["ms"] for c in t["critical"]) - t["step_ms"]) < 1e-6, t
assert t["path"] == "all.json.gz" and t["ranks"] == 96 and t["classes"] == 12 and t["events"] > 1000, t
print(sorted(t))
PY
# A schedule that is written and read again is the same.
tessera simulate gpt-175b-96 $small --set layout.schedule=zb-v --schedule-out z.csv --json >/dev/null
head -c 40 z.csv; echo
tessera simulate gpt-175b-96 $small --set layout.schedule=z.csv --set layout.vpp=2 --scale tp=1 --json | python3 -c '
import json, sys
a, b = json.load(open("all.out"))["timeline"], json.load(sys.stdin)["timeline"]
assert a["step_ms"] == b["step_ms"] and b["path"] is None, (a, b)
print("the same step")'
tessera simulate gpt-175b-96 $small --scale tp=0 --scale gemm=0.8 --json | python3 -c '
import json, sys
t = json.load(sys.stdin)["timeline"]
print([c["class"] for c in t["critical"]])'
tessera simulate gpt-175b-96 $small --html t.html --timeline-ranks 0,17,95 >/dev/null && grep -c '<canvas\|"ranks":\[\[0,' t.html
try() { tessera simulate gpt-175b-96 "$@" || echo "exit $?"; }
try --slow-rank 96=1.2
try --slow-rank 3
try --slow-rank 3=0
try --scale flash=2
try --scale tp=-1
try --timeline-ranks 0
try --timeline x.json --timeline-ranks 0,96
try --timeline x.json --timeline-ranks 3,3
try --timeline x.json --search
try --timeline nowhere/x.json
try --set layout.schedule=z.csv
try --set layout.schedule=none.csv
try --set layout.schedule=zbv
try --set layout.schedule=zb-v --set layout.vpp=3
ls
