# A baseline that was twice as fast is exit code 3, one that was half as fast is none.
problem=attn,dim=16,tokens=256
tessera bench $problem -j 1 --samples 3 --json >now.json
scale() {
    python3 - "$1" <<'END' >base.json
import json, sys
o = json.load(open("now.json"))
row = o["results"][0]
row["share_of_peak"] *= float(sys.argv[1])
row["seconds_high"] = row["seconds"]
print(json.dumps(o))
END
}
scale 100
tessera bench $problem -j 1 --samples 3 --compare base.json | tail -n 2 | sed -E 's/0\.[0-9]+|[0-9]+\.[0-9]+/N/g'
echo "exit ${PIPESTATUS[0]}"
tessera bench $problem -j 1 --samples 1 --compare base.json --json |
    python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["compared"], *o["slower"][0])'
scale 0.01
tessera bench $problem -j 1 --samples 3 --compare base.json | tail -n 1
echo "exit ${PIPESTATUS[0]}"
# Another number of threads measures something else.
tessera bench $problem -j 2 --compare base.json 2>&1 | sed 's/--isa [a-z0-9]*/--isa ISA/g'
# A row that the baseline does not have is not compared.
tessera bench $problem,seed=8 -j 1 --samples 1 --compare base.json | tail -n 1
# Two stored results are compared by the script, by the same rule.
compare() {
    python3 "$CASES/../../bench/compare.py" "$@" 2>&1 | sed -E 's/[0-9]+\.[0-9]{3}/N/g'
    echo "exit ${PIPESTATUS[0]}"
}
compare base.json now.json
scale 100
compare base.json now.json
tessera info --json >info.json
compare info.json now.json
