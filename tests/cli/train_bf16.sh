# Training and sampling in bf16, by the emulation of pairs, which every machine has; reports name it.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
shape="--preset tiny --frames 2 --height 16 --width 16 --validate-every 0 --warmup 1 -q"
tessera train $shape --steps 4 --precision bf16 --isa wide-pairs --out run | grep precision
grep -o '"precision": "bf16"' run/settings.json
echo "== resumed with the same bits"
tessera train $shape --steps 4 --until 2 --precision bf16 --isa wide-pairs --out parts -j 1 >/dev/null
tessera train --out parts --resume --until 4 --isa wide-pairs -j 2 -q --json |
    python3 -c 'import json, sys; r = json.load(sys.stdin); print([r[k] for k in ("precision", "products", "products_isa")])'
cmp run/checkpoints/step-000004/diffusion_pytorch_model.safetensors \
    parts/checkpoints/step-000004/diffusion_pytorch_model.safetensors && echo same
echo "== without such products"
tessera train $shape --steps 2 --precision bf16 --isa base --out base | grep precision
echo "== samples"
tessera sample run --steps 3 -o bf16.npy --precision bf16 --isa wide-pairs -j 1
tessera sample run --steps 3 -o again.npy --precision bf16 --isa wide-pairs -j 2 --json | grep 'precision\|products'
cmp bf16.npy again.npy && echo same
tessera sample run --steps 3 -o fp32.npy --isa wide-pairs --json | grep 'precision\|products'
cmp -s bf16.npy fp32.npy || echo others
echo "== less memory"
for p in fp32 bf16; do
    tessera train $shape --steps 1 --frames 32 --batch 8 --precision $p --out need --dry-run --json |
        python3 -c 'import json, sys; m = json.load(sys.stdin)["memory"]; print(m["activations"], m["weights"] + m["gradients"] + m["moments"])'
done | python3 -c '
import sys
a, b = [[int(x) for x in line.split()] for line in sys.stdin]
print(b[0] < 0.6 * a[0], a[1] == b[1])'
tessera train $shape --steps 1 --precision bf16 --exact-ranks --out never; echo $?
tessera train $shape --steps 1 --precision fp8 --out never; echo $?
