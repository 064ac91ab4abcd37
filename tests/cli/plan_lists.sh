# Counts and indices of key blocks are masks.
python3 "$CASES/make.py" m.npy m:U8:2x4x4:1,0,0,1,0,1,0,0,1,1,1,0,0,0,0,0,0,0,0,1,0,0,1,0,1,1,0,1,0,1,0,1
python3 "$CASES/make.py" l.npz lists:I32:2x4x3:0,3,9,1,9,9,0,1,2,9,9,9,3,9,9,2,9,9,0,1,3,1,3,9 n:I64:2x4:2,1,3,0,1,1,3,2
plan() { tessera plan --mask "$1" --ranks 2 --json | sed 's/"plan_us[^,}]*//; s/"\(command\|source\|source_hash\)": *"[^"]*"//g; s/[ml]\.np[yz]//g'; }
plan m.npy >a
plan l.npz >b
test -s a && cmp a b && echo "the same plan"
try() { tessera plan --ranks 2 --mask l.npz "$@" || echo "exit $?"; }
try --layer 3
python3 "$CASES/make.py" l.npz lists:I32:2x4x3:4 n:I64:2x4:1
try
python3 "$CASES/make.py" l.npz lists:I32:2x4x3:0 n:I64:2x4:4
try
python3 "$CASES/make.py" l.npz lists:F32:2x4x3:0 n:I64:2x4:1
try
python3 "$CASES/make.py" l.npz lists:I32:2x4x3:0 n:I64:2x5:1
try
