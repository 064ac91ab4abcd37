# A heat map of the last two dimensions.
make() { python3 "$CASES/make.py" "$@"; }
tessera info | grep -q 'libpng *[0-9]' || { echo "the build has no libpng" >&2; exit 77; }
size() { python3 -c 'import struct, sys; d = open(sys.argv[1], "rb").read(24); print(d[1:4].decode(), *struct.unpack(">II", d[16:24]))' "$1"; }
try() { tessera tensor "$@"; echo "exit $?"; }
make t.npy t:F32:2x3x4x5:0,1,2,nan,4,inf
try t.npy --picture t.png
size t.png
try t.npy --picture t.png --slice 1,2 --low -1 --high 1e3
try t.npy --picture t.png --slice 2
try t.npy --picture t.png --slice 0,0,0
try t.npy --picture t.png --slice 0,x
try t.npy --picture t.png --low 3 --high 2
try t.npy --slice 0
make two.npz a:F32:3:1,2,3 b:F32:2:1
try two.npz --picture t.png
try two.npz --picture row.png --name a
size row.png
make wide.npy wide:U8:3x5000:0,255
try wide.npy --picture wide.png
size wide.png
make none.npy none:F32:0x3:0
try none.npy --picture none.png
ls
