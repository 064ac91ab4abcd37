# Sparse attention: decisions are printed and kept, other arms branch off, wrong options are told.
tessera info | grep -q oneDNN || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 2 --warmup 2 --validate-clips 1"
tessera train $small --attention dsv --density 0.25 --dispatch sparse --cube 2x2x2 --switch step --switch-step 3 \
    --back-recall 0.01 --profile-every 2 --check-every 2 --steps 5 --checkpoint-every 3 --out dsv 2>err >/dev/null
numbers() { sed -E 's/(recall|loss|density) [0-9.e-]+/\1 N/g'; }
numbers <err
python3 -c '
import json
lines = [json.loads(l) for l in open("dsv/events.jsonl")]
print([(l["step"], l.get("layer"), l["event"]) for l in lines])
steps = [json.loads(l) for l in open("dsv/metrics.jsonl")]
print([(s["density"], s["sparse_layers"]) for s in steps])
print([s["predictor_loss"] > 0 for s in steps])
d = json.load(open("dsv/checkpoints/step-000005/decisions.json"))
print(list(d), d["decisions"][0])
s = json.load(open("dsv/settings.json"))
print(s["attention"], s["density"], s["cube"], s["switch"], s["index-memory"])'
head -3 dsv/density.csv | cut -d, -f1-3
ls dsv dsv/checkpoints/step-000005
for kind in dense window search; do
    tessera train --branch dsv/checkpoints/step-000003 --attention $kind --out $kind 2>err >/dev/null
    numbers <err
    python3 -c "
import json
print([(s['step'], s['density']) for s in map(json.loads, open('$kind/metrics.jsonl'))])"
done
tessera train --out dsv --resume --steps 6 --json -q | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["steps"], r["sparse_layers"], r["density"])'
tessera train $small --attention dsv --cube 2x2 --out no; echo "exit $?"
tessera train $small --attention dsv --density 2 --out no; echo "exit $?"
tessera train $small --attention dsv --rank 12 --out no; echo "exit $?"
tessera train $small --attention dsv --min-density 0.5 --max-density 0.25 --out no; echo "exit $?"
tessera train $small --attention dsv --dispatch missing.json --out no; echo "exit $?"
tessera train --init dsv --branch dsv --out no; echo "exit $?"
tessera train --branch missing --out no; echo "exit $?"
tessera train --out dsv --resume --attention oracle -q; echo "exit $?"
