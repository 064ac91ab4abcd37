# What a run's folder says is what was done; --resume keeps the model and the data of a run.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
small="--preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-clips 1 --warmup 0 -j 1"
try() { "$@" >/dev/null; echo "exit $?"; }
settings() { python3 -c "
import json, sys
s = json.load(open(sys.argv[1] + '/settings.json'))
print({k: s[k] for k in ('steps', 'lr', 'preset', 'init', 'config', 'data', 'beta1') if k in s})" "$1"; }
exec 2>&1
echo "== numbers are the shortest that are read back as the same"
tessera train $small --steps 4 --out run -q >/dev/null
settings run
grep -cE '[0-9]\.[0-9]{16}' run/settings.json
echo "== --resume refuses another model and other data"
try tessera train --out run --resume --preset small
try tessera train --out run --resume --config no.json
try tessera train --out run --resume --data recall
echo '{"data": "recall"}' >other.json
try tessera train --out run --resume --settings other.json
try tessera train --out run --resume --preset tiny --data shapes --steps 4 -q
echo "== a folder without a run"
try tessera train --out typo --resume
mkdir empty
try tessera train --out empty --resume
ls -A typo empty 2>/dev/null
echo "== nothing to do changes nothing"
tessera train --out run --resume --steps 2 --lr 0.5 | grep -E 'nothing|steps'
settings run
echo "== settings of a resumed run are those of its steps"
tessera train --out run --resume --steps 6 -v 2>&1 | grep -E 'learning rate|^steps +[0-9]+$'
settings run
tessera train --out run --resume 2>&1 | grep -c 'learning rate'
echo "== the schedule continues without a word where it is the same"
tessera train $small --steps 8 --until 3 --out part -q >/dev/null
tessera train --out part --resume 2>&1 | grep -E 'learning rate|^steps +[0-9]+$'
echo "== --init records the weights that it found"
tessera train --init run --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 --steps 1 --out init -q -j 1 >/dev/null
settings init
try tessera train --out init --resume --preset small
tessera train --out init --resume --steps 2 -q -j 1 | grep steps
settings init
cp init/checkpoints/step-000001/config.json model.json
tessera train $small --config model.json --validate-every 0 --steps 1 --out config -q -j 1 >/dev/null
settings config
echo "== a run that was killed between its last checkpoint and the removal of its oldest"
tessera train $small --steps 3 --checkpoint-every 1 --keep 2 --validate-every 0 --out kept -q >/dev/null
cp -r kept/checkpoints/step-000002 kept/checkpoints/step-000001
tessera train --out kept --resume -q >/dev/null
ls kept/checkpoints
