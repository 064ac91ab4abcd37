# One head of a run in files that `tessera check attn` reads; models alone; the data of a run.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--clips 2 --no-cubes -q"
tessera train --preset tiny --frames 4 --height 16 --width 16 --steps 4 --validate-every 0 --attention dsv \
    --switch step --switch-step 2 --dispatch sparse --cube 2x2x2 --max-density 0.5 --out run -q >/dev/null
echo "== a head"
tessera profile run $small --dump 1,0 --dump-to head >/dev/null
ls head
tessera tensor head/*.np? --no-stats | grep -E 'F32|I64'
for lists in oracle predictor; do
    tessera check attn --q head/q.npy --k head/k.npy --v head/v.npy --lists head/$lists.npz --dump $lists
    tessera check attn --q head/q.npy --k head/k.npy --v head/v.npy --lists head/$lists.npz --o $lists/o.npy |
        sed -n '2,3s/by at most [^ ]*/by at most X/p'
done
echo "== a model alone"
tessera profile run/checkpoints/step-000004/ema $small --data shapes --frames 4 --height 16 --width 16 | sed -n 1p
tessera profile run/checkpoints/step-000004/ema $small
echo "== the folder of a run's data"
python3 "$CASES/make.py" latents.npy x:F32:12x4x8x8:0.5,-0.25,1
mkdir latents && for i in 1 2 3; do cp latents.npy latents/$i.npy; done
tessera train --preset tiny --data latents --steps 2 --validate-every 0 --out held -q >/dev/null
tessera profile held $small | sed -n 1p
mv held/settings.json held/gone.json
tessera profile held $small
echo "== wrong use"
tessera profile run $small --dump 2,0
tessera profile run $small --dump 1
tessera profile nosuch $small
