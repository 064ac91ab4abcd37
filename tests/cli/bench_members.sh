# Every member that a benchmark prints as JSON is listed in docs/formats.md.
step=step,layers=1,heads=2,dim=64,ffn=64,tokens=512
tessera bench attn,tokens=128,density=0.5 --samples 1 -j 1 -q --json > attn.json
tessera bench context,ranks=2,heads=2,dim=16,tokens=128,density=0.5 --samples 1 -q --json > context.json
files="attn.json context.json"
if tessera info | grep -q '^  oneDNN'; then
    tessera bench $step,density=0.2,break_even=0.5 --samples 1 -j 1 -q --json > step.json
    tessera bench $step,ranks=2 --samples 1 -q --json > ranks.json
    files="$files step.json ranks.json"
fi
python3 - "$CASES/../../docs/formats.md" $files << 'END'
import json, re, sys

common = {"schema", "command", "version", "isa", "threads", "seed"}
text = open(sys.argv[1], encoding="utf-8").read()
section = text[text.index("# What `tessera bench --json` prints"):]
listed = set(re.findall(r"`(\w+)`", re.split(r"\n## ", section)[0]))

def members(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from members(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from members(inner)

for path in sys.argv[2:]:
    for name in sorted(set(members(json.load(open(path)))) - common - listed):
        print(f"{path}: {name} is not listed")
END
