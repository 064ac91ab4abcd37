# The ways in which people name a model: weights, folders, pipelines, variants; configs of diffusers; embeddings.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera train --preset tiny --frames 2 --height 16 --width 16 --steps 1 --validate-every 0 --out run -q >/dev/null
weights=diffusion_pytorch_model.safetensors
size="--frames 2 --height 16 --width 16 --steps 2 -q"
mkdir pipeline
cp -r run/checkpoints/step-000001/ema pipeline/transformer
echo "== weights, folder, pipeline"
tessera sample pipeline/transformer $size -o folder.npy
tessera sample pipeline/transformer/$weights $size -o weights.npy && cmp folder.npy weights.npy
tessera sample pipeline $size -o pipeline.npy && cmp folder.npy pipeline.npy
tessera profile pipeline --data shapes --frames 2 --height 16 --width 16 --clips 1 --no-cubes | sed -n 1p
tessera profile pipeline/transformer/$weights --data shapes --frames 2 --height 16 --width 16 --clips 1 --no-cubes | sed -n 1p
tessera tensor pipeline --no-stats --name 'patch_embedding.*'
tessera tensor pipeline/transformer --no-stats | sed -n 1p
cp pipeline/transformer/$weights lonely.safetensors
tessera sample lonely.safetensors $size -o none.npy
echo "== a variant"
cp -r pipeline/transformer variant
tessera tensor variant/$weights -o variant/diffusion_pytorch_model.fp16.safetensors --dtype F16 -q
rm variant/$weights
tessera tensor variant --no-stats | sed -n 1p
tessera sample variant $size -o half.npy && [ -s half.npy ] && echo sampled
mkdir shards
tessera tensor variant -o shards/diffusion_pytorch_model.fp16.safetensors.index.json --shard 50KB -q
mv shards/diffusion_pytorch_model.fp16.safetensors.index.json shards/$weights.index.fp16.json
cp variant/config.json shards
tessera sample shards $size -o shards.npy && cmp half.npy shards.npy
cp variant/diffusion_pytorch_model.fp16.safetensors variant/diffusion_pytorch_model.bf16.safetensors
tessera sample variant $size -o none.npy
mkdir empty
tessera tensor empty
echo "== qk_norm of a config"
for word in null '"layer_norm"' true; do
    sed -i "s/\"qk_norm\": .*,/\"qk_norm\": $word,/" pipeline/transformer/config.json
    tessera sample pipeline ${size% -q} -o norm.npy && cmp folder.npy norm.npy
done
echo "== embeddings shorter and longer than text_len"
width=$(sed -n 's/.*"text_dim": \([0-9]*\).*/\1/p' pipeline/transformer/config.json)
length=$(sed -n 's/.*"_text_len": \([0-9]*\).*/\1/p' pipeline/transformer/config.json)
python3 - $width $length <<'END'
import struct, sys
width, length = map(int, sys.argv[1:])
def save(name, rows, shape):
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % shape.encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    data = [(i * 37 % 11 - 5) / 5 if i < 3 * width else 0 for i in range(rows * width)]
    open(name, "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + struct.pack("<%df" % len(data), *data))
save("short.npy", 3, f"3, {width}")
save("batch.npy", 3, f"1, 3, {width}")
save("full.npy", length, f"{length}, {width}")
save("long.npy", length + 1, f"{length + 1}, {width}")
END
tessera sample pipeline $size --text full.npy -o full_clip.npy
for text in short batch; do
    tessera sample pipeline $size --text $text.npy -o clip.npy && cmp full_clip.npy clip.npy
done
tessera sample pipeline $size --text long.npy -o none.npy
echo "exit $?"
