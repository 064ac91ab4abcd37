# The options of train in groups; each help line names its thing and stands alone.
tessera train --help | grep -E '^[A-Z][a-z ]+:$'
tessera train --help | python3 -c '
import re, sys
body = sys.stdin.read().split("\nRun:\n")[1].split("\nExamples:")[0]
alone = [re.sub(r"\s+", " ", text) for text in re.findall(r"^  (?:-\w, )?--[\w-]+(?: \S+)?\s+(\S.*)$", body, re.M)]
assert len(alone) > 60, len(alone)
for line in alone:
    assert not re.match(r"(its|it|they|them|which|what|the same|pixels|for|in|a head)\b", line), line
'
tessera help --markdown | grep -E '^\| (Run|Model|Data|Optimiser|Validation|Sparse attention|Ranks) \|'
tessera help --man | grep -E '^(Run|Model|Data|Optimiser|Validation|Sparse attention|Ranks):$'
