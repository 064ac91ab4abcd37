# Defaults, then --settings, then options; what is in force is kept, and a resumed run takes it from there.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
echo '{"preset": "tiny", "steps": 3, "lr": 0.01, "batch": 2, "seed": 7, "recompute": true}' >s.json
shape="--frames 2 --height 16 --width 16 --validate-clips 1"
tessera train --settings s.json --lr 0.02 $shape --out run -q >/dev/null
show() { python3 -c "import json; s = json.load(open('$1')); print([s[k] for k in ('preset', 'steps', 'lr', 'batch', 'seed', 'recompute', 'optimiser')])"; }
show run/settings.json
show run/checkpoints/step-000003/settings.json
wc -l <run/metrics.jsonl
tessera train --out run --resume --steps 5 --json -q | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(list(r))
print(r["steps"], r["seed"], r["checkpoint"])'
show run/settings.json
python3 -c '
import json
lines = [json.loads(l) for l in open("run/metrics.jsonl")]
print([l["step"] for l in lines], sorted(lines[0]))
print([l["val_loss"] is not None for l in lines], len(lines[-1]["val_buckets"]))'
head -c 30 run/metrics.csv; echo
tessera train --out run $shape --preset tiny -q
echo "exit $?"
