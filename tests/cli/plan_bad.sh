# Wrong input gets one sentence and exit 2, and nothing is written.
try() { tessera plan "$@" --out out.json --html out.html || echo "exit $?"; }
row() { printf 'step,layer,head,density\n1,0,0,0.5\n%s\n' "$1" >p.csv && try --density p.csv --ranks 2; }
try
try --density a.csv --mask b.npy
try --density missing.csv
row 1,0,1,nan
row 1,0,1,-0.5
row 1,0,1,1.5
row 1,0,1
row 1,0,2,0.5
row 1,0,0,0.5
printf 'step,layer,head,density\n1,0,0,0.5\n1,0,1,0\n' >p.csv
try --density p.csv --ranks 0
try --density p.csv --ranks 2 --step 9
try --density p.csv --ranks 2 --layer 9
try --density p.csv --ranks 2 --column kept
try --density p.csv --ranks 2 --ulysses 3
try --density p.csv --ranks 4 --ring 2 --selective 2
try --density p.csv --ranks 2 --speeds 1
try --density p.csv --ranks 2 --cluster h10
try --density p.csv --ranks 2 --reuse
try --density p.csv --ranks 2 --method whole
try --density p.csv --ranks 4 --method refined --whole-heads
try --density p.csv --ranks 2 --cluster h100 --memory 0.0001
python3 "$CASES/make.py" m.npy m:U8:2x3x8x8:1,0,0,1,1,0,1
try --mask m.npy --ranks 2 --tokens 9
try --mask m.npy --ranks 2 --layer 7
try --mask p.csv --ranks 2
python3 "$CASES/make.py" m.npy m:U8:3x8x8:1,0,7
try --mask m.npy --ranks 2
ls
