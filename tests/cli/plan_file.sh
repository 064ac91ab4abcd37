# Plans that were written before: printed, explained, checked and drawn; inputs as they exist.
still() { sed 's/planned in [0-9.]* us/planned in T us/'; }
try() { tessera plan "$@" || echo "exit $?"; }
printf 'step,layer,head,density\n' >p.csv
for step in 1 2 4; do printf "$step,5,%s\n" 0,0.9 1,0.1 2,0.$step 3,0.4 >>p.csv; done
echo "- all steps"
tessera plan --density p.csv --ranks 2 --cluster h100 --out run.plan.json | still
tessera plan run.plan.json --explain
tessera plan run.plan.json --check p.csv --html page.html
grep -c '<figure' page.html
tessera plan run.plan.json --json | grep -c '"step"'
echo "- masks"
python3 "$CASES/make.py" m.npy m:U8:2x4x8x8:1,0,0,1,1,0,1
python3 "$CASES/make.py" other.npy m:U8:2x4x8x8:1,1,0,1
tessera plan --mask m.npy --ranks 2 --out m.plan.json | still
tessera plan m.plan.json --check other.npy | tail -2
echo "- profiles without steps, of dropped fractions"
printf 'layer,head,Sparsity\n0,0,0.9\n0,1,0.5\n0,2,0.5\n0,3,0.1\n' >s.csv
tessera plan --density s.csv --column Sparsity --dropped --ranks 2 | still
tessera plan --density s.csv --column Sparsity --kept --ranks 1 | still
echo "- wrong"
try --density s.csv --ranks 2
try --density s.csv --column Sparsity --kept --dropped
try --mask masks.pt
try --mask run.plan.json
try run.plan.json --check m.npy
try run.plan.json --density p.csv
try --density p.csv --check m.npy
try p.csv
