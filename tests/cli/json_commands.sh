# With --json each command prints one object that begins with schema, command, version.
check()
{
    tessera "$@" | python3 -c '
import json, sys
o = json.load(sys.stdin)
assert list(o)[:6] == ["schema", "command", "version", "isa", "threads", "seed"], list(o)
assert o["schema"] == 1 and o["threads"] == 2 and o["seed"] == 7
print(o["command"], *list(o)[6:])
for key in list(o)[6:]:
    if isinstance(o[key], dict):
        print(" ", key, *sorted(o[key]))
    elif isinstance(o[key], list):
        print(" ", key, *sorted({k for item in o[key] for k in item}))'
}
check info --json -j 2 --seed 7 --measure --quiet
check doctor -j2 --seed=7 --json
