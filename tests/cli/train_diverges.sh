# A run whose loss explodes ends with a checkpoint of its last good state; what cannot happen is said before the first step; arms that
# branch off are sparse at once.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 1 --validate-clips 1 --warmup 0 --decay-from 1 -j 1"
exec 2>&1
numbers() { sed -E 's/ is [0-9.e+]+, the/ is X, the/; s/was [0-9.]+;/was X;/; s/step [0-9]+ is/step N is/'; }
echo "== divergence"
tessera train $small --steps 5 --checkpoint-every 5 --validate-every 0 --out run -q >/dev/null
tessera train --out run --resume --steps 400 --lr 900 --optimiser muon --lr-muon 900 --clip 0 -q 2>&1 | numbers
echo "exit ${PIPESTATUS[0]}"
ls -A run/checkpoints
tessera train --out run --resume --steps 8 --lr 900 --lr-muon 900 --clip 0 --diverge-above 0 -q 2>&1 | grep -c diverges
echo "== steps are run again, and the run goes on from there with a smaller rate"
tessera train $small --warmup 60 --steps 400 --checkpoint-every 10 --validate-every 0 --lr 1 --lr-muon 5 --clip 0 --out rising 2>&1 | grep diverges | numbers | sed -E "s/step-[0-9]+/step-N/; s/1 to [0-9]+/1 to N/"
ls -A rising/checkpoints | sed -E "s/[0-9]+/N/"
tessera train --out rising --resume --steps 40 --lr 0.001 --lr-muon 0.001 -q >/dev/null; echo "exit $?"
wc -l < rising/metrics.jsonl; wc -l < rising/commands.txt
echo "== validation alone shows it"
tessera train $small --steps 1 --validate-every 1 --lr 900 --lr-muon 900 --clip 0 --out once -q 2>&1 | numbers
echo "exit ${PIPESTATUS[0]}"
ls -A once/checkpoints
echo "== what cannot happen"
tessera train $small --steps 2 --attention dsv --dry-run 2>&1 >/dev/null
tessera train $small --steps 2 --attention window --density 0.25 --warmup 9 --dry-run 2>&1 >/dev/null
echo "== arms"
tessera train $small --steps 9 --until 3 --validate-every 0 --out trunk -q >/dev/null
for kind in oracle window random pooled; do
    tessera train --branch trunk --attention $kind --density 0.25 --cube 2x2x2 --dispatch sparse --steps 5 --out $kind -q >/dev/null
    python3 -c '
import json, sys
print(sys.argv[1], [json.loads(l)["sparse_layers"] for l in open(sys.argv[1] + "/metrics.jsonl")], json.load(open(sys.argv[1] + "/settings.json"))["switch-step"])' $kind
done
tessera train --branch trunk --attention window --density 0.25 --cube 2x2x2 --dispatch sparse --switch-step 4 --steps 6 --out later -q >/dev/null
python3 -c 'import json; print([json.loads(l)["sparse_layers"] for l in open("later/metrics.jsonl")])'
echo "== one line says where sparse attention does not pay, and seeds share one measurement"
for seed in 1 2; do
    tessera train $small --steps 3 --validate-every 0 --attention dsv --switch step --switch-step 1 --density 0.9 --cube 2x2x2 --seed $seed \
        --out seed$seed 2>&1 >/dev/null | grep -E 'faster|heads sparse' |
        sed -E 's/is never faster than dense/is faster than dense below density 0/; s/below density [0-9.e-]+/below density X/; s/break-even [0-9.e-]+/break-even X/; s/about [0-9]+/about N/; s/, and would not with more/, but from about N/'
done
cmp <(grep break_even seed1/events.jsonl | sed 's/measured/cached/') <(grep break_even seed2/events.jsonl) && echo same
