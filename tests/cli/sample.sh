# Samples of a run in every kind of file that needs no FFmpeg; the same bits with any threads.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera train --preset tiny --frames 2 --height 16 --width 16 --steps 2 --validate-every 0 --out run -q >/dev/null
tessera sample run --prompt "a red disc" --steps 2 -o one.npy -j 1
tessera sample run --prompt "a red disc" --steps 2 -o two.npy -j 3
cmp one.npy two.npy
tessera sample run/checkpoints/step-000002 --prompt "a red disc" --prompt "a blue square" --count 2 --steps 2 -o sheet.png
head -c 4 sheet.png | tail -c 3; echo
tessera sample run --frames 4 --height 24 --width 32 --steps 2 --scale 3 -o clip.y4m
head -n 1 clip.y4m | cut -d ' ' -f 1-3
tessera sample run --no-ema --steps 2 --guidance 1 -o plain.npy --json | grep -v 'version\|isa\|threads\|seconds'
cmp -s one.npy plain.npy || echo "other weights, other clip"
tessera sample run/checkpoints/step-000002/ema --frames 2 --height 16 --width 16 --prompt "a red disc" --steps 2 -o same.npy
cmp one.npy same.npy
tessera sample run/checkpoints/step-000002/ema --steps 2 -o none.npy
echo "exit $?"
tessera sample run --height 25 --steps 2 -o none.npy
echo "exit $?"
