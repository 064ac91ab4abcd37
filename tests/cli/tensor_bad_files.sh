# Missing, truncated and foreign files get a sentence that names file, place and rule.
make() { python3 "$CASES/make.py" "$@"; }
try() { tessera tensor "$@"; echo "exit $?" >&2; }
make a.npy a:F32:2x3:1
make m.safetensors w:F32:4x2:1
make z.npz x:F32:100:1
for f in a.npy m.safetensors z.npz; do
    size=$(stat -c %s $f)
    for cut in 4 60 $((size - 1)); do
        head -c $cut $f >cut.$f
        try cut.$f
    done
done
: >empty.npy
try empty.npy
echo "hello" >text
try text
try missing.npy
try .
try a.npy missing.npy --json | sed 's/"version": "[^"]*"/"version": N/'
try
try --name 'x*' a.npy
