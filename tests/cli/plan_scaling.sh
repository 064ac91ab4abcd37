# Numbers of ranks in one table: with times, without, where some cannot be planned, and wrong ones.
printf 'layer,head,density\n' >p.csv
for layer in 0 1; do printf "$layer,%s\n" 0,0.9 1,0.1 2,0.2 3,0.4 >>p.csv; done
try() { tessera plan --density p.csv "$@" || echo "exit $?"; }
try --ranks 1,2,4,8,64 --cluster h100
try --ranks 1,2 --cluster h100
try --ranks 2,3 --method fractional
try --ranks 2,8 --method refined --whole-heads
try --ranks 2,4 --cluster h100 --json | grep -v '"version"\|"isa"\|"threads"\|"seed"'
try --ranks 4,2
try --ranks 2,
try --ranks 2,70000
try --ranks 2,4 --out plan.json
