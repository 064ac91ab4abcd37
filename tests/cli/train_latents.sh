# Latents made elsewhere train without a word about their shape: sizes, channels and the width of
# the text come from the files. What does not fit is said with what to change.
make() { python3 "$CASES/make.py" "$@"; }
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
try() { tessera "$@"; echo "exit $?"; }
train() { tessera train --preset tiny --batch 2 --validate-every 0 -q "$@" >/dev/null; echo "exit $?"; }
settings() { grep -E '"(frames|height|width|pack)"' "$1/settings.json"; }
make latents.npy x:F32:6x16x3x4x6:0.5,-1,0.25,1
make text.npy x:F32:6x3x20:0.1,0.2,0.3
train --data ./latents.npy --text text.npy --steps 2 --out run
settings run
grep -o '"in_channels": *[0-9]*\|"text_dim": *[0-9]*' run/checkpoints/step-000002/config.json
train --out run --resume --steps 3
train --data ./latents.npy --text text.npy --steps 3 --out whole
cmp run/checkpoints/step-000003/diffusion_pytorch_model.safetensors \
    whole/checkpoints/step-000003/diffusion_pytorch_model.safetensors && echo "the same weights"
# A sample is a latent; an embedding with fewer rows than the model's is filled up.
make prompt.npy x:F32:1x2x20:0.1,0.2
try sample run --steps 2 --text prompt.npy -o sample.npy
tessera tensor sample.npy --json | grep -A 6 '"shape"' | tr -d ' \n'; echo
make wide.npy x:F32:2x21:0.1
try sample run --steps 2 --text wide.npy -o none.npy
train --data ./latents.npy --text text.npy --frames 3 --height 4 --steps 1 --out named
train --data ./latents.npy --frames 8 --steps 1 --out none
train --data ./latents.npy --pack 2 --steps 1 --out none
make odd.npy x:F32:2x16x3x5x6:1
train --data ./odd.npy --steps 1 --out none
make eight.npy x:F32:2x8x3x4x6:1
train --data ./eight.npy --text text.npy --init run --steps 1 --out none
train --data shapes --init run --steps 1 --out none
train --data ./latents.npy --text wide.npy --init run --steps 1 --out none
ls
