# NaN and infinities are counted, and the range is that of the others.
make() { python3 "$CASES/make.py" "$@"; }
make some.npy some:F32:2x3:nan,-inf,1,2,inf,nan
make all.npy all:F32:4:nan
tessera tensor some.npy all.npy
tessera tensor some.npy all.npy --json | python3 -c '
import json, sys
for f in json.load(sys.stdin)["files"]:
    print(json.dumps(f["tensors"][0]["stats"]))'
