# One problem's members are the result's, several are a list; both say whether all is well.
keys='
import json, sys
o = json.load(sys.stdin)
for key in ("max_rel_error",):
    assert 0 <= o.get(key, 0) <= o.get("tolerance", 0)
print(*list(o))
for p in [o] + o.get("problems", []):
    print(p.get("problem"), p["ok"], p.get("precision"), p.get("rows_checked"), p.get("rows"))
    for out in p.get("outputs", []):
        print(" ", *(f"{k}={v}" if isinstance(v, (str, bool)) else k for k, v in out.items()))'
tessera check attn,dim=8,tokens=20,pass=bwd --json -j 2 | python3 -c "$keys"
tessera check attn,dim=8,tokens=20 select,tokens=40 --json --tolerance 0 | python3 -c "$keys"
echo "exit ${PIPESTATUS[0]}"
