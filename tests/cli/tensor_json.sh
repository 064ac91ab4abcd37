# The JSON of tensor: one object, complete, whatever is done.
make() { python3 "$CASES/make.py" "$@"; }
make m.safetensors w:F32:4x2:1,2 b:F32:2:0.5
show() { python3 -c '
import json, sys
o = json.load(sys.stdin)
assert list(o)[:6] == ["schema", "command", "version", "isa", "threads", "seed"], list(o)
print(json.dumps({k: o[k] for k in list(o)[6:]}, indent=1))'; }
tessera tensor m.safetensors --json | show
tessera tensor m.safetensors --json -o n.npz --dtype f16 | show
