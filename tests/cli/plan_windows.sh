# Windows of sliding tile attention are densities; files that are no plan get what to do.
printf '{"0_0_0": [3, 3, 5], "0_0_1": [5, 6, 10], "0_1_0": [1, 6, 10], "0_1_1": [9, 1, 1]}\n' >w.json
printf 'step,layer,head,density\n0,0,0,0.15\n0,0,1,1\n0,1,0,0.2\n0,1,1,0.016666666666666666\n' >w.csv
plan() { tessera plan --density "$1" --ranks 2 --method lpt --json --tokens 6400 "${@:2}"; }
plan w.json --tiles 5x6x10 | sed -n 's/.*"rho_after_mean": *\([0-9.]*\).*/\1/p' >a
plan w.csv | sed -n 's/.*"rho_after_mean": *\([0-9.]*\).*/\1/p' >b
test -s a && cmp a b && echo "the same imbalance"
try() { tessera plan "$@" || echo "exit $?"; }
try --density w.json --ranks 2
try --density w.json --ranks 2 --tiles 5x6
printf '{"0_0": [3, 3, 5]}\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
printf '{"0_0_0": [3, 5]}\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
printf '{"0_0_0": [3, 0, 5]}\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
printf '{"0_0_0": [3, 1, 5], "0_1_1": [1, 1, 1]}\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
printf '[]\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
try a.pt
try --density a.pt --ranks 2
try m.npy
try w.csv
echo "- windows that a plan is checked with; --tiles alone"
tessera plan --density w.json --tiles 5x6x10 --ranks 2 --tokens 6400 --out w.plan.json | tail -1
tessera plan w.plan.json --check w.json --tiles 5x6x10 | tail -1
try w.plan.json --check w.json
try w.plan.json --tiles 5x6x10
try --mask w.json --ranks 2
try --density w.csv --ranks 2 --tiles 5x6x10
try --mask m.npy --ranks 2 --tiles 5x6x10
try --density w.json --ranks 2 --tiles 5x6x10 --kept
printf '{"0_0_0": [3, 3, 5], "00_0_0": [3, 3, 5]}\n' >bad.json
try --density bad.json --ranks 2 --tiles 5x6x10
