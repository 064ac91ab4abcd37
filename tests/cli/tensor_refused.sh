# A tensor of a type the library does not read is reported, and the others are still printed.
python3 "$CASES/make.py" m.safetensors w:F32:2:1,2 tiny:F8_E4M3:2:1,2
try() { tessera tensor m.safetensors "$@"; echo "exit $?"; }
try
try --quiet --json | python3 -c '
import json, sys
text = sys.stdin.read()
o = json.loads(text[:text.rindex("exit")])
print(o["refused"], [t["name"] for t in o["files"][0]["tensors"]])'
try -o out.npz
try --name w -o out.npz --quiet | sed 's/, [0-9.]* B$/, SIZE/'
