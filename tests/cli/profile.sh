# How sparse a model's attention is: text, JSON, CSV that the planner reads, page; the same with any threads.
tessera info | grep -q oneDNN || { echo 'this build has no oneDNN' >&2; exit 77; }
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
cmp one.json three.json && head -n 16 one.json
echo "-- what is wrong"
tessera profile nowhere
tessera profile run run
tessera profile run --cube 2,2,2
tessera profile run --layer 7 --clips 1 --no-cubes -o none.html
[ -e none.html ] || echo "no page"
