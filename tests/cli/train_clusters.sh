# Virtual keys by cluster in training: clusters of each clip, or shared ones that checkpoints keep; resumed to the bit.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 2 --warmup 2 --validate-every 0 --sample-every 0 -q -j 1
    --attention dsv --density 0.25 --cube 2x2x2 --switch step --switch-step 2 --back-recall 0.01 --dispatch sparse
    --steps 6 --checkpoint-every 3 --keep 0"
same() { # RUN RUN FILE
    cmp $1/checkpoints/step-000006/$3 $2/checkpoints/step-000006/$3 && echo "$1 and $2 have the same $3"
}
for every in 0 2; do
    tessera train $small --compensate 4 --cluster-every $every --out whole$every >/dev/null
    tessera train $small --compensate 4 --cluster-every $every --until 3 --out parts$every >/dev/null
    tessera train --resume -q -j 2 --out parts$every >/dev/null
    same whole$every parts$every diffusion_pytorch_model.safetensors
    ls whole$every/checkpoints/step-000006 | grep clusters
done
same whole2 parts2 clusters.safetensors
echo "== words stand for two of the numbers, in settings of before too"
for n in on 1 off 0; do
    tessera train $small --steps 3 --compensate $n --out n$n >/dev/null
    grep -h '"compensate"' n$n/settings.json n$n/checkpoints/step-000003/decisions.json
done
sed -i 's/"compensate": 1/"compensate": true/' non/checkpoints/step-000003/decisions.json
sed -i 's/"compensate": 1/"compensate": "on"/' non/settings.json non/checkpoints/step-000003/settings.json
tessera train --resume -q -j 1 --steps 4 --out non >/dev/null; echo "exit $?"
tessera train $small --compensate 65 --out no; echo "exit $?"
tessera train $small --compensate some --out no; echo "exit $?"
echo "== keys by mass times distance"
tessera train $small --compensate 4 --choose error --out error >/dev/null
cmp -s whole0/checkpoints/step-000006/diffusion_pytorch_model.safetensors error/checkpoints/step-000006/diffusion_pytorch_model.safetensors; echo "differs: $?"
tessera sample error --steps 2 -j 1 -o x.npy --compensate 1 | tail -n 1
tessera train $small --choose error --compensate 1 --out no; echo "exit $?"
tessera train $small --choose error --compensate 4 --attention window --out no; echo "exit $?"
echo "== groups by content, and random ones"
for kind in content random; do
    tessera train $small --compensate 4 --group $kind --until 3 --out $kind >/dev/null
    cp -r $kind whole-$kind
    tessera train --resume -q -j 1 --out whole-$kind >/dev/null
    tessera train --resume -q -j 2 --out $kind >/dev/null
    same whole-$kind $kind diffusion_pytorch_model.safetensors
    cmp -s whole0/checkpoints/step-000006/diffusion_pytorch_model.safetensors $kind/checkpoints/step-000006/diffusion_pytorch_model.safetensors; echo "differs: $?"
    tessera sample $kind --steps 2 -j 1 -o x.npy | tail -n 1
done
tessera train $small --group content --attention window --out no; echo "exit $?"
tessera train $small --group some --out no; echo "exit $?"
echo "== sampling: as it was trained, with other clusters, with none"
for n in '' '--compensate 4' '--compensate 8' '--compensate off'; do
    tessera sample whole2 --steps 2 -j 1 -o x.npy $n | tail -n 1
done
tessera sample whole2 --steps 2 -j 1 -o x.npy --compensate 99; echo "exit $?"
