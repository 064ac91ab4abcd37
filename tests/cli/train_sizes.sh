# Clips of several sizes: what a folder gives to each, training on them, its need, mistakes.
tessera info | grep -q 'oneDNN *[0-9]' || { echo "the build has no libtessera_train" >&2; exit 77; }
try() { tessera "$@" | grep -v '^memory'; echo "exit ${PIPESTATUS[0]}"; }
try data shapes --sizes 8x32x32:3,4x16x16 --count 5
mkdir clips
for i in 1 2 3; do
  tessera data shapes --count 1 --first $i --frames 9 --height 16 --width 16 -o clips/small$i.y4m > nothing
  tessera data shapes --count 1 --first $i --frames 9 --height 16 --width 32 -o clips/wide$i.y4m > nothing
done
try data clips --sizes 4x16x16,4x16x32 --count 3
tessera data clips --sizes 4x16x16,4x16x32 --count 1 --json | grep -A 12 '"sizes"'
try data shapes --sizes 8x32x32,4x16x16 -o s.png
try data shapes --sizes 8x32x32,4x16x16 --judge
try data shapes --sizes 8x32
try data shapes --sizes 8x32x32 --frames 4
try data clips --sizes 4x16x16:2
small() { tessera train --preset tiny --data shapes --sizes 4x16x16:3,8x16x16 --batch 4 -q --validate-clips 4 "$@"; }
small --steps 8 --warmup 2 --validate-every 4 --out whole > nothing || exit
small --steps 8 --warmup 2 --validate-every 4 --until 3 --out half > nothing || exit
tessera train --out half --resume -q > nothing || exit
grep '"sizes"' half/settings.json
cmp whole/checkpoints/step-000008/optimiser.safetensors half/checkpoints/step-000008/optimiser.safetensors && echo "the same bits"
small --weigh clips --steps 2 --dry-run | grep '^data'
try train --preset tiny --data shapes --sizes 4x16x16,4x18x16 --out odd
small --attention dsv --steps 2 --warmup 1 --out sparse | grep '^attention'
try train --preset tiny --data shapes --sizes 4x16x16,8x16x16 --attention own --selector masks.npy --out own
