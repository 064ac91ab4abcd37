# What a model would be trained on: drawn clips, folders with broken clips, latents.
make() { python3 "$CASES/make.py" "$@"; }
tessera info | grep -q 'oneDNN *[0-9]' || { echo "the build has no libtessera_train" >&2; exit 77; }
tessera info | grep -q 'libpng *[0-9]' || { echo "the build has no libpng" >&2; exit 77; }
try() { tessera data "$@" | grep -v '^memory'; echo "exit ${PIPESTATUS[0]}"; }
size() { python3 -c 'import struct, sys; d = open(sys.argv[1], "rb").read(24); print(d[1:4].decode(), *struct.unpack(">II", d[16:24]))' "$1"; }
try shapes --count 5
try shapes --count 2 --first 3 --split validation --seed 9 --pack 2
try recall --count 1 -o board.png --frames 4
size board.png
try shapes --count 3 -o three.gif
head -c 6 three.gif && echo
mkdir clips
tessera data shapes --count 1 -o clips/a.y4m > nothing
tessera data shapes --count 1 --first 1 -o clips/b.y4m > nothing
echo "a clip of ours" > clips/a.txt
echo "a clip of ours too" > clips/b.txt
echo "no clip" > clips/c.y4m
try clips --count 2
try clips --count 1 --frames 9
try shape
try clips --count 1 -o clips.avi
try shapes --count 0
try recall --height 36
make latents.npy x:F32:3x2x2x2x2:1,2,3
try latents.npy --count 2 --json | sed '/"version"/d; /"isa"/d; /"threads"/d; /memory_bytes/d'
try latents.npy -o l.png
ls
# What a run would see: lengths, sizes, rates, words, and what would keep most of it.
mkdir long
tessera data shapes --frames 20 --height 24 --width 48 --count 1 -o long/a.y4m > nothing
tessera data shapes --frames 50 --height 24 --width 48 --count 1 -o long/b.y4m > nothing
tessera data shapes --frames 9 --count 1 -o long/c.y4m > nothing
echo "a clip of three words or more" > long/a.txt
try long --frames 8 --count 2
try long --frames 12 --count 1 --stride 4
try long --frames 8 --count 1 --fps 4 --json | grep -A 24 '"files"'
try long --frames 8 --count 3 -o numbers.npy > nothing
tessera tensor numbers.npy --json | grep -A 6 '"shape"' | tr -d ' \n'; echo
