# A selector of one's own, as a shared object and as recorded masks: in train, sample and profile.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
so=$(dirname "$TESSERA")/../lib/selector.so
[ -f "$so" ] || { echo 'the example selector.so is not beside this command' >&2; exit 77; }
cp "$so" "$(dirname "$so")/plugin_version.so" "$(dirname "$so")/plugin_symbol.so" .
sizes="--preset tiny --frames 4 --height 16 --width 16 --validate-every 0 --cube 2x2x2 --switch-step 2 --dispatch sparse -q"
echo "== a shared object"
tessera train $sizes --steps 4 --selector selector.so --density 0.25 --out run | grep attention
tessera train $sizes --steps 4 --selector selector.so --density 0.25 --until 3 --out again >/dev/null
tessera train --resume --out again -q | grep attention
cmp run/checkpoints/step-000004/diffusion_pytorch_model.safetensors again/checkpoints/step-000004/diffusion_pytorch_model.safetensors &&
    echo "the same bits after a resume"
tessera sample run --steps 2 --selector selector.so -o a.npy | tail -n 1
tessera sample run --steps 2 --selector selector.so -j 3 -o b.npy >/dev/null && cmp a.npy b.npy && echo "the same bits on other threads"
tessera sample run --steps 2 --attention oracle --density 0.25 -o c.npy >/dev/null; cmp -s a.npy c.npy || echo "the selector's keys, not the oracle's"
tessera profile run --selector selector.so --clips 2 --no-cubes | sed -n '2p' # its recall
echo "== recorded masks: each cube attends to itself and to the next one"
python3 "$CASES/make.py" masks.npy mask:BOOL:1x1x8x8:1,1,0,0,0,0,0,0,0
tessera train $sizes --steps 4 --selector masks.npy --out masks | grep attention
tessera sample masks --steps 2 --selector masks.npy -o d.npy | tail -n 1
tessera profile masks --selector masks.npy --clips 2 --no-cubes | sed -n '2p'
echo "== wrong use"
tessera sample run --steps 2 -o x.npy
tessera sample run --steps 2 --attention pooled --selector selector.so -o x.npy
tessera train $sizes --steps 4 --attention own --out x
tessera train $sizes --steps 4 --attention window --selector selector.so --out x
tessera train $sizes --steps 4 --selector plugin_version.so --out x
tessera train $sizes --steps 4 --selector plugin_symbol.so --out x
tessera train $sizes --steps 4 --selector nosuch.so --out x
python3 "$CASES/make.py" small.npy mask:BOOL:1x1x4x4:1
tessera sample run --steps 2 --selector small.npy --density 1 -o x.npy
tessera train $sizes --steps 4 --selector masks.npy --density 0.125 --out x
ls -d x 2>/dev/null
