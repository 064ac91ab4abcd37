# Plans from a profile and from masks; times change from run to run.
profile() {
    echo step,layer,head,density
    for step in 1 2; do for layer in 0 1; do
        printf "$step,$layer,%s\n" 0,0.9 1,0.1 2,0.$step 3,0.4
    done; done
}
still() { sed 's/planned in [0-9.]* us/planned in T us/'; }
profile >p.csv
echo "- every method"
for method in contiguous snake lpt db-sp refined fractional auto; do
    tessera plan --density p.csv --ranks 2 --method $method | sed -n '4,$p' | still
done
echo "- any number of ranks"
tessera plan --density p.csv --ranks 3 | still
tessera plan --density p.csv --ranks 7 --method fractional --tokens 1000 | still
echo "- times and reasons"
tessera plan --density p.csv --ranks 4 --cluster h100 --step 2 --layer 1 --explain | still
tessera plan --density p.csv --ranks 4 --cluster h100 --pass train --union 0.5 --step 1 --layer 0 --explain | still
echo "- reuse"
tessera plan --density p.csv --ranks 2 --method lpt --replan-above 1.1 | tail -1 | still
tessera plan --density p.csv --ranks 2 --method lpt --replan-above 5 | tail -1 | still
tessera plan --density p.csv --ranks 2 --cluster h100 --reuse | tail -1 | still
echo "- options of executors"
tessera plan --density p.csv --ranks 2 --speeds 3,1 --step 1 --layer 0 | still
tessera plan --density p.csv --ranks 2 --equal-heads --whole-heads --whole-keys --step 1 --layer 0 | still
echo "- files"
tessera plan --density p.csv --ranks 3 --out plan.json --html page.html | tail -2
cp plan.json before.json
tessera plan --density p.csv --ranks 3 --out plan.json --html page.html >/dev/null && cmp plan.json before.json
python3 "$CASES/make.py" m.npy m:U8:2x3x8x8:1,0,0,1,1,0,1
tessera plan --mask m.npy --ranks 2 --ulysses 1 --ring 2 --out ring.json --html ring.html | still
grep -c '<figure' page.html ring.html
