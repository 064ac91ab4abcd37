# Names come from the files that define them; the whole run from --steps or --tokens, in text and in JSON.
share=$CASES/../../share
for what in software models clusters scenarios; do
    tessera simulate --list $what --json >$what.json
    tessera simulate --list $what | awk '{ print $1 }' >$what.txt
done
python3 - "$share" <<'END'
import json, os, sys
share = sys.argv[1]
names = lambda folder: sorted(f[:-5] for f in os.listdir(f"{share}/{folder}") if f.endswith(".json"))
parameters = json.load(open(f"{share}/simulator/parameters.json"))
sets = parameters.get("eras") or parameters["software"]
want = {"software": list(sets), "clusters": names("clusters"), "scenarios": names("scenarios"),
        "models": [m for f in names("models") for m in json.load(open(f"{share}/models/{f}.json"))["models"]]}
for what, known in want.items():
    r = json.load(open(what + ".json"))
    listed = [e["name"] for e in r["entries"]]
    assert r["list"] == what and listed == known, (what, listed, known)
    assert listed == open(what + ".txt").read().split(), what
    assert all(e["about"] for e in r["entries"]), what
    print(what, "as in the files,", sum(e["default"] for e in r["entries"]), "default")
END
tessera simulate --list models | grep '^gpt-175b '
for more in "--tokens 300B" "--tokens 0.3t" "--steps 1.5K"; do
    tessera simulate gpt-175b-96 $more --price 2 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
run = r["run"]
assert abs(run["hours"] - run["steps"] * r["step_ms"] / 3.6e6) < 1e-6 * run["hours"]
assert abs(run["gpu_hours"] - 96 * run["hours"]) < 1e-6 * run["gpu_hours"]
assert abs(run["price"] - 2 * run["gpu_hours"]) < 1e-6 * run["price"]
print(run["steps"], "steps,", run["tokens"], "tokens")'
done
tessera simulate gpt-175b-96 --tokens 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["run"]["price"])'
tessera simulate gpt-175b-96 --tokens 300B | grep '^run' | sed 's/ [0-9.e+]* hours, [0-9.e+]* / N hours, N /'
# The number of steps of a search with a deadline is that of its tokens.
tessera simulate gpt-175b-96 --search --over layout.tp=4,8 --tokens 300B --deadline 1e6 | head -1
try() { tessera simulate "$@" || echo "exit $?"; }
try --list hardware
try gpt-175b-96 --list models
try gpt-175b-96 --tokens 14.8X
try gpt-175b-96 --tokens 300B --steps 10
try gpt-175b-96 --search --over training.global_batch=96,192 --tokens 300B --deadline 1
try gpt-175b-96 --search --deadline 1
# Pages: a step by its parts with what each input changes, and predicted against measured.
tessera simulate gpt-175b-96 --price 2 --html cost.html >/dev/null && grep -c '<figure id="\(time\|memory\|money\|inputs\)"' cost.html
tessera simulate gpt-175b-96 --html cost.html >/dev/null && grep -c '<figure id="money"' cost.html
printf 'label,model.name,layout.tp,system.cluster,measured.step_ms\na,gpt-22b,8,a100-80,1500\n' >t.csv
tessera validate t.csv --html measured.html >/dev/null && grep -o '<figure id="[a-z0-9-]*"' measured.html
try gpt-175b-96 --html no/such/folder/cost.html >/dev/null
