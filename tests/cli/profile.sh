# How sparse a model's attention is: text, JSON, CSV that the planner reads, page; the same with any threads.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera train --preset tiny --frames 4 --height 16 --width 16 --steps 4 --checkpoint-every 2 --validate-every 0 --out run -q >/dev/null
numbers() { sed -E 's/[0-9]\.[0-9]{3}/N/g'; }
tessera profile run --clips 3 --batch 2 -o page.html --csv noise.csv | numbers
ls page.html
head -n 1 noise.csv
cut -d , -f 1-3 noise.csv | tail -n 3
tessera plan --density noise.csv --ranks 2 >/dev/null 2>&1 && echo planned
tessera profile run/checkpoints/step-* --clips 2 --no-cubes --csv steps.csv | numbers
cut -d , -f 1 steps.csv | uniq
tessera profile run --clips 2 --no-cubes --cube 1x2x2 --json -j 1 | grep -v '"version"\|"isa"\|"threads"' >one.json
tessera profile run --clips 2 --no-cubes --cube 1x2x2 --json -j 3 | grep -v '"version"\|"isa"\|"threads"' >three.json
cmp one.json three.json && head -n 18 one.json
echo "-- predictors, in the cubes and by the proxy they were trained with"
tessera train --preset tiny --frames 4 --height 16 --width 16 --steps 4 --validate-every 0 --attention dsv --cube 1x2x4 \
    --proxy softmax --out dsv -q >/dev/null
tessera profile dsv --clips 2 | numbers
recall='
import json, sys
r = json.load(sys.stdin)
all = [x for l in r["checkpoints"][-1]["levels"] for layer in l["recall"] for x in layer]
assert all and 0 < min(all) and max(all) < 1 + 1e-9, all
print(r["cube"], r["proxy"], r["recall_density"], len(r["overlap"]), "exact" if min(all) > 1 - 1e-5 else "learned")'
tessera profile dsv --clips 2 --no-cubes --density 0.125 --json | python3 -c "$recall"
tessera profile dsv --clips 2 --proxy mean --cube 1x1x1 --density 0.125 --json | python3 -c "$recall"
python3 - dsv/checkpoints/step-000004/predictor.safetensors <<'END'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", raw[:8])
out = bytearray(raw)
for name, t in json.loads(raw[8:8 + n]).items():
    if name != "__metadata__":  # heads x rank x head_dim: the vectors become q and k themselves
        heads, rank, dim = t["shape"]
        one = [float(r == d) for _ in range(heads) for r in range(rank) for d in range(dim)]
        begin, end = t["data_offsets"]
        out[8 + n + begin:8 + n + end] = struct.pack("<%df" % len(one), *one)
open(sys.argv[1], "wb").write(out)
END
echo "-- predictors that are exact"
tessera profile dsv --clips 2 --no-cubes --density 0.125 --json | python3 -c "$recall"
tessera profile dsv --clips 2 --no-cubes --proxy mean --cube 1x1x1 --json | python3 -c "$recall"
tessera profile dsv --clips 2 --no-cubes --proxy mean --json | python3 -c "$recall" # of a group the mean is not
echo "-- what is wrong"
tessera profile nowhere
tessera profile run run
tessera profile run --cube 2,2,2
tessera profile run --layer 7 --clips 1 --no-cubes -o none.html
[ -e none.html ] || echo "no page"
