# Samples of a run that became sparse: as it was trained, in other ways, against dense ones.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera train --preset tiny --frames 4 --height 16 --width 16 --steps 4 --validate-every 0 --attention dsv \
    --switch step --switch-step 2 --dispatch sparse --cube 2x2x2 --max-density 0.5 --out run -q >/dev/null
tessera sample run --steps 4 -o trained.npy --density-out density.csv -j 1
head -n 3 density.csv
wc -l <density.csv
tessera plan --density density.csv --tokens 64 --ranks 2 --json | grep -q '"ranks": 2' && echo "plan reads it"
tessera sample run --steps 4 -o again.npy -j 3 | head -n 1
cmp trained.npy again.npy
echo "== against dense, whose times differ from run to run"
tessera sample run --steps 4 -o x.npy --density 0.125 --compare-dense | sed 's/[0-9.]* dB/N dB/; s/[0-9.]*\( s\|x$\)/N\1/g'
tessera sample run --steps 4 -o x.npy --attention dense --compare-dense --json | grep -v 'version\|isa\|threads\|seconds'
tessera sample run --steps 4 -o x.npy --attention random --density 1 | tail -n 1
tessera sample run --steps 4 -o x.npy --attention pooled --density 0.25 --compensate off | tail -n 1
tessera sample run --steps 8 -o x.npy --attention oracle --mass 0.5 --guidance 1 --density-out density.csv | wc -l
grep -c ',1.000000' density.csv
echo "== search"
for every in 1 2; do
    tessera sample run --steps 3 -o search-$every.npy --attention search --density 0.25 --search-every $every | tail -n 1
done
tessera sample run --steps 3 -o oracle.npy --attention oracle --density 0.25 | tail -n 1
cmp oracle.npy search-1.npy && ! cmp -s oracle.npy search-2.npy && echo "oracle, until keys are used again"
echo "== cubes and proxies"
for kind in oracle dsv; do
    at="tessera sample run --steps 2 --attention $kind --density 0.25"
    $at -o trained.npy >/dev/null && $at --cube 2x2x2 -o same.npy >/dev/null && $at --cube 1x1x1 -o other.npy >/dev/null
    cmp trained.npy same.npy && ! cmp -s trained.npy other.npy && echo "$kind in the cubes of the run"
done
$at --proxy mean -o same.npy >/dev/null && $at --proxy softmax -o other.npy >/dev/null
cmp trained.npy same.npy && ! cmp -s trained.npy other.npy && echo "by the proxy of the run"
echo "== wrong"
tessera sample run --steps 3 -o x.npy --cube 1x1x1; echo "exit $?"
tessera sample run --steps 3 -o x.npy --density 0.5 --cube 1,1,1; echo "exit $?"
tessera sample run --steps 3 -o x.npy --attention dense --cube 1x1x1; echo "exit $?"
tessera sample run --steps 3 -o x.npy --attention oracle --proxy mean; echo "exit $?"
tessera sample run --steps 3 -o x.npy --attention oracle --density 0.25 --search-every 2; echo "exit $?"
tessera sample run --steps 4 -o x.npy --attention window; echo "exit $?"
tessera sample run --steps 4 -o x.npy --attention dense --mass 0.5; echo "exit $?"
tessera sample run --steps 4 -o x.npy --mass 0.5 --density 0.5; echo "exit $?"
tessera sample run/checkpoints/step-000004/ema --frames 4 --height 16 --width 16 --steps 4 -o x.npy --density 0.5; echo "exit $?"
tessera sample run/checkpoints/step-000004/ema --frames 4 --height 16 --width 16 --steps 4 -o x.npy --attention dsv --density 0.5; echo "exit $?"
