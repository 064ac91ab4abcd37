# Usual mistakes on the command line: one sentence each, which names what was typed and what would be right; no C names.
n=0
# Runs a command that must fail with one sentence.
mistake() {
    n=$((n + 1))
    echo "\$ tessera $*"
    tessera "$@" >out 2>err && echo "does not fail"
    grep -v "^Try 'tessera" err
    [ "$(grep -vc "^Try 'tessera" err)" = 1 ] || echo "not one sentence"
    grep -E 'tess_|TESS_|NULL|enum' err && echo "a C name"
    [ -s out ] && { echo "prints a result:"; cat out; }
}
mkdir folder
echo 'not a table' >text.txt
printf 'step,layer,head,density\n0,0,0,0.5\n0,0,1,0.25\n' >density.csv
printf 'step,layer,head,densitie\n0,0,0,0.5\n' >column.csv
printf 'step,layer,head,density\n0,0,0,50\n' >percent.csv
python3 "$CASES/make.py" m.npy m:F32:2x3:1,2
# Other words and other units.
mistake palm
mistake plan --rank 8
mistake plan --density density.csv --ranks eight
mistake plan --density density.csv --ranks -4
mistake plan --density density.csv --ranks 2 --tokens 32k
mistake plan --density density.csv --ranks 2 --cluster h1000
mistake plan --density density.csv --ranks 2 --method lpd
mistake plan --density density.csv --ranks 3 --ulysses 2 --ring 2
mistake plan --ranks 8
mistake plan --density density.csv --ranks 2 --topology nodes
mistake plan --density density.csv --ranks 2 --batch 4
mistake plan --density nosuch.csv --ranks 2
mistake plan --density folder --ranks 2
mistake plan --density column.csv --ranks 2
mistake plan --density percent.csv --ranks 2
mistake plan --density '' --ranks 2
mistake plan --mask m.npy --ranks 2
mistake plan --mask m.npy --density density.csv --ranks 2
mistake plan --density density.csv --ranks 2 --speeds 1,2,3
mistake plan --density density.csv --ranks 2 --out folder
# Simulator.
mistake simulate nosuch
mistake simulate wan2.1-14b-dsv-128 --set layout.tp=three
mistake simulate wan2.1-14b-dsv-128 --set layout.tpp=4
mistake simulate wan2.1-14b-dsv-128 --set layout.tp
mistake simulate wan2.1-14b-dsv-128 --set layout.gpus=100
mistake simulate wan2.1-14b-dsv-128 --ranks 8
mistake simulate folder
mistake simulate text.txt
mistake validate
mistake validate text.txt
mistake validate density.csv
mistake calibrate density.csv
mistake collective
mistake collective --bytes 64X
mistake collective --bytes 64M --gpus 0
mistake collective --op allreduce --bytes 64M
mistake collective --begin 1M --end 1K
mistake collective --bytes 1M --cluster folder
mistake cluster
mistake cluster shwo h100
mistake cluster show h1000
# Tensors, checks, measurements.
mistake tensor
mistake tensor nosuch.npy
mistake tensor folder
mistake tensor text.txt
mistake tensor m.npy --slice 5
mistake tensor m.npy --name w
mistake tensor m.npy --convert m.txt
mistake check attn,heads=8,dimm=64
mistake check attn,heads=eight
mistake check atn
mistake check attn,dim=20
mistake bench attn,tokens=4K
mistake bench attn,density=10
mistake bench attn --samples 0
mistake bench --file nosuch.txt
# Runs.
if tessera info | grep -q '^  oneDNN'; then
    mistake train --out run --step 10
    mistake train --out run --steps 1e3
    mistake train --out run --lr fast
    mistake train --out run --batch 0
    mistake train --out run --preset medium
    mistake train --out run --ulysses 2
    mistake sample nosuch --output clip.gif
    mistake sample folder --output clip.webm
    mistake sample folder
    mistake profile nosuch
    mistake data nosuch
    mistake data
fi >train.txt
mistake report
mistake report nosuch
mistake report folder
mistake compare
mistake compare folder
mistake info --threads 0
mistake info --threads
mistake info --measure=yes
mistake help nosuch
mistake doctor --quite
[ ! -s train.txt ] || grep -E 'not one sentence|a C name|does not fail|prints a result' train.txt
[ $n -ge 25 ] && echo "25 mistakes and more"
