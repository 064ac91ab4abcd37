# Mixtures of clips: codes, files, speeds, memory, steps, and what is wrong with them.
still() { sed -E 's/planned in [0-9.]* us/planned in T us/; s/"plan_us_mean": [0-9.e-]*/"plan_us_mean": T/'; }
try() { tessera plan "$@" || echo "exit $?"; }
default=g3b16i256f1s0,g2b8i512f1s0,g2b4i1024f1s0,g1b1i2048f1s0
echo "- codes"
tessera plan --clips $default --ranks 8 --explain | still
tessera plan --clips $default --ranks 16 --cluster h100 --pass train --layers 40 | still
tessera plan --clips $default --ranks 16 --whole-clips | still
echo "- a file, unequal ranks, memory, steps"
printf 'tokens,count,density\n75600,1,0.2\n32760,3,0.3\n512,40,\n' >mix.csv
tessera plan --clips mix.csv --ranks 4 --speeds 2,2,1,1 --explain | still
tessera plan --clips mix.csv --ranks 4 --memory 4 --steps 2 --width 512 --heads 8 --ffn 1024 | still
printf 'frames,height,width,count,noise,density_1,density_2,density_3,density_4\n81,480,832,2,0.1,0.5,0.4,0.3,0.2\n81,480,832,2,0.9,0.5,0.4,0.3,0.2\n' >noise.csv
tessera plan --clips noise.csv --ranks 4 | still
echo "- json"
printf 'tokens\n9000\n2000\n2000\n' >few.csv
tessera plan --clips few.csv --ranks 2 --cluster h100 --json | grep -v '"isa"\|"version"\|"threads"' | still
echo "- a page"
tessera plan --clips few.csv --ranks 2 --cluster h100 --html few.html | still
grep -c '"steps":\[{"step":0,"ranks":\[\[.*\]\]}\]}</script>' few.html
tessera plan --clips $default --ranks 4 --steps 2 --html code.html --json | grep -c '"summary"'
grep -o '<title>[^<]*' code.html
echo "- wrong"
try --clips few.csv --ranks 2 --html none/few.html
try --clips g3b16 --ranks 8
try --clips missing.csv --ranks 8
try --clips mix.csv --ranks 4 --memory 0.5
try --clips mix.csv --ranks 4 --memory 5 --whole-clips
try --clips mix.csv --ranks 4 --out plan.json
try --clips mix.csv --ranks 4 --method lpt
try --clips mix.csv --ranks 4 --heads 7
try --density p.csv --ranks 4 --steps 4
