# Rows are predicted, repeats averaged, rows that cannot be expressed named; wrong files are refused.
cat >t.csv <<'END'
label,model.name,layout.gpus,layout.tp,layout.pp,training.global_batch,system.cluster,measured.step_ms,notes
good,gpt-22b,8,8,1,4,a100-80,1500,a
again,gpt-22b,8,8,1,4.0,a100-80,1300,b
no model,gpt-23b,8,8,1,4,a100-80,1500,
no time,gpt-22b,8,8,1,4,a100-80,,
odd,gpt-22b,8,7,1,4,a100-80,1500,
nowhere,gpt-22b,8,8,1,4,mars,1500,
text,gpt-22b,8,8,1,four,a100-80,1500,
short,gpt-22b
END
tessera validate t.csv >out && grep -v ' good \|^step' out
tessera validate t.csv --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["rows"], r["scored"], r["quantity"], [s["row"] for s in r["skipped"]])
c = r["cases"][0]
print(c["row"], c["repeats"], c["measured"], abs(abs(c["error_pct"]) - r["mean_abs_pct"]) < 1e-9)
assert r["mean_abs_pct"] == r["median_abs_pct"] == r["max_abs_pct"]'
try() { tessera validate "$@" || echo "exit $?"; }
try missing.csv
printf 'a,b\n1,2\n' >u.csv && try u.csv
printf '{"schema": 1, "detect": ["a"], "columns": {"measured.step_ms": "c"}}' >m.json && try u.csv --map m.json
# The same step event by event: one stage, nothing that overlaps differently.
tessera validate t.csv --events --json | python3 -c '
import json, subprocess, sys
a = json.load(sys.stdin)["cases"][0]["predicted"]
b = json.loads(subprocess.check_output(["tessera", "validate", "t.csv", "--json"]))["cases"][0]["predicted"]
print("events and closed forms", abs(a / b - 1) < 0.02)'
# Nothing scored: exit 3, and the nearest column of the right kind.
head='label,model.name,layout.gpus,system.cluster'
printf "$head,measured.step_sec\nx,gpt-22b,8,a100-80,1500\n" >n.csv && try n.csv
printf "$head,layout.ttp,measured.step_ms\nx,gpt-22b,8,a100-80,8,1500\n" >n.csv && try n.csv
printf "label,collective.opp,system.cluster,measured.busbw_gbps\nx,all_reduce,a100-80,100\n" >n.csv && try n.csv
printf "label,model.nmae,system.cluster,measured.step_ms\nx,gpt-22b,a100-80,100\n" >n.csv && try n.csv --json | tail -1
