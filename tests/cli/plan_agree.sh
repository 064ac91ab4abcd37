# The imbalance before and after is the same in plan.json, in --json and on the page: for rings in
# two head groups, for fractional heads, and where some layers have no contiguous split.
python3 "$CASES/make.py" m.npy m:U8:2x4x12x12:1,0,0,1,1,0,1,0,0,0,0,1,1
compare() {
    tessera plan "$@" --out plan.json --html page.html --json >out.json
    python3 - <<'END'
import json
import re

text = open("page.html", encoding="utf-8").read()
page = json.loads(re.search(r'<script[^>]*application/json[^>]*>(.*?)</script>', text, re.S).group(1))
result = json.load(open("out.json"))
made, printed = json.load(open("plan.json"))["steps"][-1]["layers"], result["plans"][-1]["layers"]
for i, (a, b) in enumerate(zip(made, printed)):
    before, after = page["before"][i][0], page["after"][i][0] # means over one step
    assert a["rho_before"] == b["rho_before"], (a["rho_before"], b["rho_before"])
    assert a["rho_ring"] == b["rho_after"], (a["rho_ring"], b["rho_after"])
    assert (b["rho_before"] is None) == (before is None)
    assert before is None or abs(before - b["rho_before"]) <= 1e-5 * before
    assert abs(after - b["rho_after"]) <= 1e-5 * after
    numbers = [b["rho_before"], b["rho_after"], a["rho_global"]]
    print(b["method"], b["ulysses"], b["ring"], *("-" if x is None else "%.3f" % x for x in numbers))
means = [result["summary"]["rho_before_mean"], result["summary"]["rho_after_mean"]]
tiles = re.findall(r'<b>([0-9.]+)</b>[^<]*<[^>]*>(imbalance [a-z]+, mean)', text)
print("means", *("-" if x is None else "%.3f" % x for x in means), tiles)
END
}
echo "- a ring with 2 head groups"
compare --mask m.npy --ranks 4 --ulysses 2 --ring 2
echo "- contiguous heads"
compare --mask m.npy --ranks 4 --ulysses 2 --ring 2 --method contiguous
echo "- fractional heads, on 3 ranks and on 4"
compare --mask m.npy --ranks 3 --method fractional
compare --mask m.npy --ranks 4 --method fractional
echo "- heads divide in one layer only"
printf 'step,layer,head,density\n' >p.csv
for head in 0 1 2; do printf '0,0,%d,0.5\n0,1,%d,0.%d\n' $head $head $((head + 1)); done >>p.csv
compare --density p.csv --ranks 2 --tokens 4096
