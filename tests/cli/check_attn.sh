# Attention in files: right outputs pass, and each planted mistake is named. The outputs are the
# command's own reference, dumped with the mistake made; tests/torch/peers.py has other programs.
values() { # SEED COUNT
    python3 -c "import random; random.seed($1); print(','.join('%.5f' % random.gauss(0, 1) for _ in range($2)))"
}
make() { python3 "$CASES/make.py" "$@"; }
for t in 1:q 2:k 3:v 4:do 5:old; do
    make "${t#*:}.npy" "${t#*:}:F32:2x3x40x16:$(values "${t%:*}" 3840)"
done
qkv="--q q.npy --k k.npy --v v.npy"
numbers() { sed -E 's/off by at most [^ ]+/off by at most X/; s/[^ ]+, must be [^ ]+ within .*, at batch.*/X, must be Y within Z, at PLACE/;
                    s/[0-9]+ of ([0-9]+) elements/N of \1 elements/'; }
check() { tessera check attn $qkv --do do.npy "$@" | numbers; echo "exit ${PIPESTATUS[0]}"; }
# All outputs of a folder.
of() { printf -- '--o %s/o.npy --lse %s/lse.npy --dq %s/dq.npy --dk %s/dk.npy --dv %s/dv.npy' "$1" "$1" "$1" "$1" "$1"; }
times() { # IN OUT FACTOR: every number of a .npy of F64
    python3 - "$@" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
at = 10 + struct.unpack("<H", data[8:10])[0]
n = (len(data) - at) // 8
open(sys.argv[2], "wb").write(data[:at] + struct.pack(f"<{n}d", *(x * float(sys.argv[3]) for x in struct.unpack(f"<{n}d", data[at:]))))
END
}

echo "== right"
check --dump right
check $(of right)
echo "== layout shd: the same numbers, moved"
python3 - <<'END'
import struct
for name in ("q", "k", "v", "do"):
    data = open(name + ".npy", "rb").read()
    at = 10 + struct.unpack("<H", data[8:10])[0]
    rows = [data[at + 64 * i:at + 64 * (i + 1)] for i in range(240)]
    head = data[:at].replace(b"(2, 3, 40, 16, )", b"(2, 40, 3, 16, )")
    open("shd_" + name + ".npy", "wb").write(head + b"".join(rows[(b * 3 + h) * 40 + s] for b in range(2) for s in range(40) for h in range(3)))
END
tessera check attn --q shd_q.npy --k shd_k.npy --v shd_v.npy --layout shd --dump shd
tessera check attn --q shd_q.npy --k shd_k.npy --v shd_v.npy --layout shd --o shd/o.npy --lse right/lse.npy | numbers
tessera check attn $qkv --o shd/o.npy
echo "== scale"
check --scale 1 --dump wrong >log && check $(of wrong)
check --scale 0.0625 --dump wrong >log && check $(of wrong)
echo "== stale keys"
tessera check attn --q q.npy --k old.npy --v v.npy --do do.npy --dump wrong >log
check $(of wrong) --old-k old.npy
check --o wrong/o.npy
echo "== lists"
make lists.npz offsets:I64:31:$(seq -s, 0 2 60) indices:I32:60:$(printf '0,1,0,3,1,2,2,4,3,4,%.0s' 1 2 3 4 5 6 | sed 's/,$//') group:I64::8 unit:I64::8
make turned.npz offsets:I64:31:0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60 indices:I32:60:$(printf '0,1,0,2,2,3,1,4,3,4,%.0s' 1 2 3 4 5 6 | sed 's/,$//') group:I64::8 unit:I64::8
check --lists turned.npz --dump wrong >log && check --lists lists.npz $(of wrong)
echo "== padding"
make padding.npy m:BOOL:2x1x1x40:$(printf '1,%.0s' {1..31})$(printf '0,%.0s' {1..9})$(printf '1,%.0s' {1..39})1
check --dump wrong >log && check --mask padding.npy $(of wrong)
echo "== gradients of kernels for scale 1, base-2 lse"
times right/dq.npy dq.npy 4
times right/dk.npy dk.npy 4
times right/lse.npy lse.npy 1.4426950408889634
check --o right/o.npy --lse lse.npy --dq dq.npy --dk dk.npy --dv right/dv.npy
echo "== JSON"
tessera check attn $qkv --lse lse.npy --json | grep -E '"(ok|mistake|precision)"'
echo "== wrong use"
tessera check attn --q q.npy --k k.npy
tessera check attn $qkv
tessera check attn $qkv --dq dq.npy
tessera check attn $qkv --o q.npy --mask lists.npz
tessera check attn $qkv --o q.npy --lists q.npy
tessera check linear $qkv --o q.npy
tessera check attn --q q.npy --k do.npy --v padding.npy --o q.npy
make reals.npy m:F32:40x40:0,1
tessera check attn $qkv --o q.npy --mask reals.npy
make short.npz offsets:I64:3:0,1,2 indices:I32:2:0,9 group:I64::8 unit:I64::8
tessera check attn $qkv --o q.npy --lists short.npz
make beyond.npz offsets:I64:31:$(seq -s, 0 30) indices:I32:30:9 group:I64::8 unit:I64::8
tessera check attn $qkv --o q.npy --lists beyond.npz
