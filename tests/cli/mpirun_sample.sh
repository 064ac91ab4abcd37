# Clips of many ranks are those of one; rank 0 writes them; an error is printed once.
. "$CASES/mpi.bash"
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
tessera train --preset tiny --frames 4 --height 16 --width 16 --steps 4 --validate-every 0 --attention dsv \
    --switch step --switch-step 2 --dispatch sparse --cube 2x2x2 --max-density 0.5 --out run -q >/dev/null
options="run --steps 4 --seed 3 -j 1"
tessera sample $options -o one.npy >/dev/null
launch() { # RANKS OPTION...
    local ranks=$1
    shift
    timeout 250 "$mpirun" -n "$ranks" tessera sample $options "$@" 2>err |
        sed -E 's/[0-9.]+ s$/N s/; /^sent /s/[0-9.]+( [KMG]iB)?( B)?/N/g'
    echo "exit ${PIPESTATUS[0]}"
}
# The largest difference, relative to the largest value.
difference() {
    python3 - "$1" "$2" <<'PYTHON'
import struct, sys
def floats(path):
    data = open(path, "rb").read()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    return struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])
a, b = floats(sys.argv[1]), floats(sys.argv[2])
apart = max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a))
print("same clip" if len(a) == len(b) and apart <= 1e-4 else apart)
PYTHON
}
launch 2 -o two.npy
difference one.npy two.npy
launch 3 -o three.npy --plan-log
difference one.npy three.npy
grep -c 'plan [0-9]* \(of\|kept for\) step [0-3]' err
launch 2 --halves off --strategy contiguous --density-out density.csv -o x.npy
difference one.npy x.npy
wc -l <density.csv
# Plans for a described cluster depend on no clock.
launch 3 --cluster h100 -o a.npy >/dev/null
launch 3 --cluster h100 -o b.npy >/dev/null
cmp a.npy b.npy && difference one.npy a.npy
launch 3 --cluster nowhere -o x.npy
grep '^tessera' err | sed 's/: rank [0-9]*: /: /'
launch 2 --halves off --strategy selective --json -o x.npy | sed '$d' | python3 -c 'import json, sys
for kind, sent in json.load(sys.stdin)["sent"].items():
    print(kind, sent["bytes"] > sent["messages"] > 0)'
launch 3 -o x.npy --halves on
grep '^tessera' err | sed 's/: rank [0-9]*: /: /'
launch 2 -o no/such/folder/x.npy
grep '^tessera' err
