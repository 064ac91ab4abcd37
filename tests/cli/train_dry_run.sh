# What a run needs is said before it begins; a run that does not fit is refused.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
numbers() { sed -E 's/(about) [0-9.e+]+ (ms|s|min|h|days)/\1 T/; s/[0-9]+ %/N %/g; s/ +[0-9.]+ [KMGT]iB$/ N/; s/[0-9.]+ [KMGT]iB/N/g'; }
# ThreadSanitizer may make a step too long to be run for its time.
slow() { if tessera info | grep -q 'sanitizers: thread'; then sed -E 's/^(step +about T):/\1 (4 steps on this machine):/'; else cat; fi; }
small="--preset tiny --frames 4 --height 16 --width 16 --batch 2" # so that sanitizers too run its steps
tessera train $small --dry-run | numbers | slow
tessera train $small --dry-run --json | grep -c '"total"'
tessera train --preset 14b --data shapes --frames 80 --height 960 --width 960 --dry-run 2>err | numbers
numbers <err
tessera train --preset 14b --frames 80 --height 960 --width 960 --out run 2>&1 | numbers
ls
