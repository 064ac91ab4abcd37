# The members that other programs read.
cat >keys.py <<'END'
import json, math, sys
o = json.load(sys.stdin)
runs = o.get("problems", [o])
print(*(k for k in o if k not in ("problems", "results")), sep=" ")
for run in runs:
    print(run["problem"], run["precision"])
    assert abs(run["peak_gflops"] - run["peak_one_gflops"] * o["threads"]) < 1e-6 * run["peak_gflops"]
    rows = {r["name"]: r for r in run["results"]}
    for r in run["results"]:
        print(" ", r["name"], r["pass"], round(r["density"], 4), *(k for k in r if r[k] is None))
        assert r["seconds"] <= r["seconds_median"] and r["seconds_low"] <= r["seconds_high"]
        assert math.isclose(r["share_of_peak"], r["gflops"] / run["peak_gflops"])
    if "sparse" in rows:
        dense, sparse, select = (rows[n] for n in ("dense", "sparse", "select"))
        assert math.isclose(sparse["over_ideal"], sparse["seconds"] / (sparse["density"] * dense["seconds"]))
        assert math.isclose(sparse["speedup_over_dense"], dense["seconds"] / sparse["seconds"])
        assert math.isclose(sparse["speedup_with_select"],
                            dense["seconds"] / (sparse["seconds"] + select["seconds"]))
        assert 0 <= run["break_even_density"] <= 1
        work = 10 if sparse["pass"] == "bwd" else 4
        assert math.isclose(dense["gflops"] * dense["seconds"], work * 256 * 256 * 16 / 1e9)
END
tessera bench attn,dim=16,tokens=256,density=0.25,unit=1,group=32,pass=bwd -j 2 --samples 1 --json >one.json
python3 keys.py <one.json
tessera bench attn,dim=16,tokens=256,density=0.25 attn,dim=16,tokens=256,density=0.5 --samples 1 --json |
    python3 keys.py
