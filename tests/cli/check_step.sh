# Training steps of the model, which need oneDNN.
tessera info | grep -q '^  oneDNN' || { echo "built without oneDNN" >&2 && exit 77; }
tessera check step,batch=2,heads=2,dim=16,layers=2,ffn=50,tokens=30,text=7 | sed -E '1d; s/off by [^,]*/off by X/'
tessera check step,tokens=2000 2>&1 | sed -E 's/takes [^ ]*/takes X/'
tessera bench step,heads=1,dim=8,layers=1,ffn=9,tokens=7,text=3,keep=blocks,store=bf16 --samples 1 -j 1 |
    sed -E '1d; s/ +[0-9]+(\.[0-9]+)?/ N/g; s/ +-/ -/g; /disturbed/d; s/[KM]iB/of memory/'
tessera bench step,heads=1,dim=8,layers=1,ffn=9,tokens=7,text=3,pass=fwd --samples 1 --json |
    python3 -c 'import json, sys
r = json.load(sys.stdin)
print(r["results"][0]["name"], round(r["attention_share"] + r["linear_share"] + r["rest_share"], 6), r["step_bytes"] > 0)'
# A sparse step beside the dense one, by a density and by a profile; one head of four is dense.
printf 'step,layer,head,density\n1,0,0,0.5\n1,0,1,0.1\n1,1,0,0.9\n1,1,1,0.2\n1,2,0,0.3\n1,2,1,1\n' >density.csv
sparse=step,heads=2,dim=16,layers=2,ffn=9,tokens=60,text=3,group=8,break_even=0.75
tessera check $sparse,density=0.2,compensate=1 $sparse,density=0.2,compensate=6 $sparse,batch=2,keep=blocks,profile=density.csv,profile_layers=0:2 |
    sed -E '1d; s/off by [^,]*/off by X/'
tessera bench $sparse,profile=density.csv --samples 1 -j 1 |
    sed -E '1d; 3,$s/ +[0-9]+(\.[0-9]+)?/ N/g; s/ +-/ -/g; /disturbed/d; /slower than dense/d'
tessera bench $sparse,density=0.25 --samples 1 --json |
    python3 -c 'import json, math, sys
r = json.load(sys.stdin)
rows = {row["name"]: row for row in r["results"]}
a, rho = r["self_attention_share"], r["density"]
assert math.isclose(r["bound"], 1 / (1 - a + a * rho)) and math.isclose(r["of_bound"], r["speedup"] / r["bound"])
assert math.isclose(rows["sparse"]["speedup_over_dense"], rows["step"]["seconds"] / rows["sparse"]["seconds"])
assert r["speedup"] <= rows["sparse"]["speedup_over_dense"] and a <= r["attention_share"]
parts = [r[part + "_share"] for part in ("select", "learn", "update", "profile", "check")]
assert min(parts) > 0 and math.isclose(r["overhead_share"], sum(parts)) and 0 < r["recall"] <= 1
assert math.isclose(rows["sparse"]["seconds"], (1 - parts[3] - parts[4]) * rows["step"]["seconds"] / r["speedup"])
print("a profile every", r["profile_every"], "steps, a check every", r["check_every"])
print(rho, round(r["density_ran"], 4), r["heads"], r["dense_heads"], r["cube"])'
tessera bench $sparse,density=0.25,pass=fwd --samples 1 --json | # nothing is learned
    python3 -c 'import json, sys
r = json.load(sys.stdin)
print(r["learn_share"], r["update_share"], r["check_share"] > 0)'
# More heads than the profile has, and fewer.
few=step,dim=16,layers=1,ffn=9,tokens=64,text=3,group=8,break_even=1,profile=density.csv,profile_layers=0:1
for heads in 1 2 3 4; do
    tessera bench $few,heads=$heads,ranks=1 --samples 1 | grep 'profile has'
    tessera bench $few,heads=$heads --samples 1 --json |
        python3 -c 'import json, sys
r = json.load(sys.stdin)
print(r["profile_heads"], r["heads"], round(r["density"], 4))'
done
tessera bench $sparse,profile=density.csv,profile_layers=0:4
tessera bench $sparse,density=0.1,profile=density.csv
tessera bench $sparse,profile_layers=0:4
tessera bench step,dim=20
# One rank and two that share the tokens, dense and sparse.
tessera bench $sparse,ranks=2,density=0.25 --samples 1 --json |
    python3 -c 'import json, math, sys
r = json.load(sys.stdin)
for s in r["steps"]:
    assert math.isclose(s["speedup"], s["seconds_one"] / s["seconds_ranks"])
    assert s["seconds_one_best"] <= s["seconds_one"] and s["seconds_ranks_best"] <= s["seconds_ranks"]
    shares = [s[part + "_share"] for part in ("plan", "index", "move", "gradient")]
    assert min(shares) >= 0 and sum(shares) < 1 and shares[0] > 0 and shares[2] > 0 and shares[3] > 0 and s["strategy"]
print(r["ranks"], *(s["name"] for s in r["steps"]))'
# A strategy for all layers; lists of keys are exchanged where it sends selected ones alone.
for strategy in fractional 1x2s; do
    tessera bench $sparse,ranks=2,density=0.25,strategy=$strategy --samples 2 --json |
        python3 -c 'import json, sys
s = json.load(sys.stdin)["steps"][1]
print(s["strategy"], s["index_share"] > 0)'
done
tessera bench $sparse,ranks=2,strategy=1x2s --samples 1 | sed -E '1d; 3,$s/ +[0-9]+(\.[0-9]+)?/ N/g'
tessera bench $sparse,ranks=2,strategy=rign
tessera bench $sparse,strategy=ring
tessera check $sparse,ranks=2
