# scripts/results-long at a tiny size: in calls, with its checkpoints lost between two of them.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
long() {
    "$CASES/../../scripts/results" --long --tessera "$TESSERA" --keep keep --work work --data recall --arms c0,window \
        --start 4 --steps 8 --side 32 --layers 1 --csv csv "$@" 2>&1 | sed -E 's/[+-][ 0-9.]+ %/X %/; s/\+-[ 0-9.]+/+-X/; s/[0-9.]+x/Nx/g'
    echo "exit ${PIPESTATUS[0]}"
}
long --seeds 1 --minutes 0
rm -r work
long --seeds 1 | grep -v '^ *keep'
long --seeds 1 --plan
long --seeds 1,2 --plan | sed 's/about .*/about/'
# What is complete is known without the checkpoints; every slice has a dense one of its call.
rm -r work
long --seeds 1 --tables
python3 -c '
import json
s = [json.loads(line) for line in open("keep/slices.jsonl")]
calls = list(dict.fromkeys(x["call"] for x in s))
for call in calls:
    print(sorted((x["arm"], x["from"], x["to"]) for x in s if x["call"] == call))
print(all(x["seconds"] > 0 and x["step_ms"] > 0 for x in s))'
ls keep keep/runs
# Nor without the folder, where there are the CSV files; the document gets what they say.
rm -r keep
cp -r csv before
printf 'Before.\n<!-- scripts/results-long -->\nold\n<!-- end of scripts/results-long -->\nAfter.\n' >doc.md
long --seeds 1 --docs doc.md
diff -r before csv && sed -E 's/[-+.0-9]+/N/g; /^\|/s/ N( N)*/ N/g' doc.md
long --docs none.md --seeds 1
long --steps 16 --plan
long --steps 12 --plan
long --arms c0,nearest --plan
