# Windows of long clips: a run that stops and resumes has the bits of one that does not, with any
# threads and memory for clips; settings of a run from before windows read the first frames.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
mkdir clips
for i in 0 1 2; do tessera data shapes --frames $((20 + 7 * i)) --first $i --count 1 -o clips/$i.y4m >/dev/null; done
train() { tessera train --preset tiny --frames 4 --height 16 --width 16 --batch 2 --validate-every 2 -q "$@" >/dev/null; echo "exit $?"; }
weights() { cat "$1"/checkpoints/step-00000"$2"/{diffusion_pytorch_model,optimiser}.safetensors | cksum; }
some="--data clips --stride 3 --random-start --random-crop --flip"
train $some --steps 6 -j 1 --out whole
train $some --steps 6 --until 3 -j 2 --out parts
train -j 2 --data-memory 0 --resume --out parts
test "$(weights whole 6)" = "$(weights parts 6)" && echo "the same bits"
train --data clips --steps 4 --until 2 --stride 0 --out first
train --data clips --steps 4 --stride 0 --out first4
sed -i '/"stride"/d; /"random-/d; /"flip"/d; /"data-memory"/d' first/settings.json first/checkpoints/*/settings.json
train --resume --out first
test "$(weights first 4)" = "$(weights first4 4)" && echo "the first frames, as before"
train --data clips --steps 4 --out second
test "$(weights second 4)" = "$(weights first4 4)" || echo "windows are other clips"
grep '"stride"' second/settings.json
# Many short clips are one warning, and each is named with -v.
tessera data clips --frames 30 --count 1 | grep -v '^memory'
tessera data clips --frames 30 --count 1 -v 2>&1 >/dev/null | sort
tessera data clips --frames 40 --count 1
mkdir texts
tessera data clips --text texts --count 1
