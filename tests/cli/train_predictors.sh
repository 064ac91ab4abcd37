# Forms of predictors and other choices of dsv reach the run, and are kept in its decisions.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 2 --warmup 2 --validate-every 0 -q -j 1
    --attention dsv --density 0.25 --cube 2x2x2 --switch step --switch-step 2 --back-recall 0.01 --steps 4"
show='
import json, sys
run = lambda name: [json.loads(l) for l in open(name + "/metrics.jsonl")]
at = json.load(open(sys.argv[1] + "/checkpoints/step-000004/decisions.json"))["attention"]
one, other = run("default"), run(sys.argv[1])
differs = lambda key, steps: any(one[s][key] != other[s][key] for s in steps)
print("%-12s" % sys.argv[1], at["input"], at["rotary"], at["proxy"], at["compensate"],
      "| dense: predictor", differs("predictor_loss", [0, 1]), "model", differs("loss", [0, 1]),
      "| sparse: model", differs("loss", [2, 3]))'
train() { # NAME OPTIONS...
    tessera train $small --dispatch sparse --out "$@" >/dev/null && python3 -c "$show" "$1"
}
echo "name, input, rotary, proxy, compensate | what differs from the default"
train default
train again
train hidden --predictor hidden
train hidden-plain --predictor hidden-plain
train cosine --predictor-loss cosine
train softmax --proxy softmax
train centre --proxy centre
train plain --compensate off
echo "== who is sparse, from a file"
python3 -c '
import json
d = json.load(open("default/checkpoints/step-000004/decisions.json"))
for layer, heads in zip(d["decisions"], ([0, 0], [1, 0])):
    layer["sparse"] = [heads] * 4
json.dump(d, open("imposed.json", "w"))'
tessera train $small --dispatch imposed.json --out imposed >/dev/null
python3 -c '
import json
d = json.load(open("imposed/checkpoints/step-000004/decisions.json"))
print([layer["sparse"][0] for layer in d["decisions"]])
print([json.loads(l)["density"] for l in open("imposed/metrics.jsonl")])'
sed -i 's/"layers": 2/"layers": 3/' imposed.json
tessera train $small --dispatch imposed.json --out no; echo "exit $?"
