# Break-even densities are measured once, and kept where caches lie, or where a user says.
tessera info | grep -q '^  oneDNN' || { echo "built without oneDNN" >&2 && exit 77; }
files() { find "$@" -name 'break-even-*.json' | sed 's/-[0-9a-f]*\.json/-HASH.json/'; }
train() { # prints how it knows, and what else it has to say
    rm -rf run
    tessera train --preset tiny --frames 4 --height 16 --width 16 --batch 2 --validate-every 0 --attention dsv --density 0.25 \
        --cube 2x2x2 --switch step --switch-step 1 --steps 2 --checkpoint-every 0 --out run "$@" 2>&1 >/dev/null |
        sed -nE 's/.* sparse attention is .*\((measured now|measured earlier)\).*/\1/p; t; s/^tessera train: (warning: )?//; /cache|cannot/p'
    echo "exit ${PIPESTATUS[0]}"
}
export XDG_CACHE_HOME=$PWD/caches
train
train
files caches
train --cache none
train --cache mine
train --cache mine
files mine
echo "in ~/.cache, or nowhere"
unset XDG_CACHE_HOME
train
XDG_CACHE_HOME=relative train
files .cache
(unset HOME && train) | sort -u
(unset HOME && train --dispatch sparse)
echo "where no folder can be"
touch file
XDG_CACHE_HOME=$PWD/file/caches train | sed -E 's/-[0-9a-f]{16}/-HASH/g; s/[^ ]*file/FILE/'
echo "of a bench"
bench() { tessera bench step,heads=1,dim=8,layers=1,ffn=9,tokens=64,text=3,group=8,$1 --samples 1 -j 1 "${@:2}"; }
for i in 1 2; do
    bench density=0.25 --json --cache of-bench | python3 -c 'import json, sys
print(json.load(sys.stdin)["break_even_from"])'
done
bench density=0.25 --cache of-bench | sed -nE 's/^( +break-even density) [0-9.]+/\1 N/p'
bench density=0.25,break_even=0.5 --json --cache none | python3 -c 'import json, sys
print(json.load(sys.stdin)["break_even_from"])'
files of-bench
(unset HOME && bench density=0.25,break_even=0.5 >/dev/null)
