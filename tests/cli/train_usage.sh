# Wrong usage of train and sample, and files that are not there or not right: one sentence each.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
try() {
    "$@"
    echo "exit $?"
}
try tessera train
try tessera train --out run --steps 0
try tessera train --out run --optimizer muon
try tessera train --out run --preset large
try tessera train --resume --dry-run
try tessera train --out run --config missing.json
try tessera train --out run --data missing/
try tessera train --out run --init missing/
try tessera train --dry-run --settings missing.json
echo '{"steps": 10, "learning": 1}' >unknown.json
try tessera train --dry-run --settings unknown.json
echo '{"stepz": 10}' >near.json
try tessera train --dry-run --settings near.json
echo '{"lr": "fast"}' >value.json
try tessera train --dry-run --settings value.json
echo '{"recompute": 1}' >flag.json
try tessera train --dry-run --settings flag.json
echo '{"lr": 1, "lr": 2}' >twice.json
try tessera train --dry-run --settings twice.json
echo '[1]' >array.json
try tessera train --dry-run --settings array.json
echo '{"out": "run"}' >out.json
try tessera train --dry-run --settings out.json
echo '{"batch_size": 4}' >longer.json
try tessera train --dry-run --settings longer.json
echo 'steps: 10' >steps.yaml
try tessera train --dry-run --settings steps.yaml
try tessera train --dry-run --preset tiny --width 30
try tessera train --dry-run --preset tiny --height 3
try tessera train --dry-run --attention dsv --rank 12
try tessera sample
try tessera sample run
try tessera sample run -o clip.avi
try tessera sample missing -o clip.npy
ls
