# A clip instead of a step: text, JSON, cost, sparse attention of a profile, a page; options of training are refused.
digits() {
    python3 -c '
import re, sys
for line in sys.stdin:
    print(re.sub(r"(?<![\w-])\d+(\.\d+)?(e[+-]\d+)?", lambda m: f"{float(m[0]):.3g}", line), end="")'
}
tessera simulate wan2.1-14b-sample --sample --price 2.5 | digits
tessera simulate wan2.1-14b-sample --set model.vae_mflop=0 --set layout.cp=4 --set sampling.guidance=parallel \
    --html p.html --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert r["clip_s_low"] < r["clip_s"] < r["clip_s_high"]
assert abs(sum(r["breakdown"].values()) / r["clip_s"] / 1e3 - 1) < 1e-6, r["breakdown"]
assert abs(r["gpu_seconds"] - 8 * r["clip_s"]) < 1e-6
print(r["clips"], r["passes"], r["denoising_steps"], r["left_out"], "step_ms" in r, r["software_measured"])'
grep -o '<title>[^<]*' p.html
# The planner balances heads of which half are dense: contiguous ones wait for the densest.
python3 -c '
print("step,layer,head,density")
for l in range(40):
    for h in range(40):
        print(f"1,{l},{h},{1.0 if h < 20 else 0.1}")' >d.csv
for method in contiguous auto; do
    tessera simulate wan2.1-14b-sample --density d.csv --method $method --json >$method.json
done
python3 -c '
import json
a, b = (json.load(open(f + ".json"))["clip_s"] for f in ("contiguous", "auto"))
assert 1.4 < a / b < 2, (a, b)'
try() { tessera simulate "$@" || echo "exit $?"; }
try gpt-175b-96 --sample
try wan2.1-14b-sample --search
try wan2.1-14b-sample --sample --steps 50
try wan2.1-14b-sample --sample --timeline t.json
try wan2.1-14b-sample --set sampling.stepz=3
