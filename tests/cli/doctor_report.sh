# The text of a bug report has its sections, and no private path, user or host name.
user=$(id -un) host=$(hostname)
export TESS_ISA=base OMP_NUM_THREADS=1 XDG_CACHE_HOME="/private/$user/cache" LANG="$user@$host"
tessera doctor --report -j 1 --disk 1K --dir /dev/shm >report || test $? = 1
grep -E '^[a-z][a-z ]*$' report
sed -n '/^environment/,/^$/p' report | grep -E '^  (TESS_ISA|OMP_NUM_THREADS|XDG_CACHE_HOME|LANG) ' | sed 's/  */ /g'
sed -n '/^system/,/^$/p' report | grep -cE '^  (system|kernel|compiler|MPI) '
grep -n '/private' report
awk '/^environment/,0' report | grep -nwF -e "$host" -e "@$user"
tessera doctor --report --json -j 1 --disk 1K | python3 -c '
import json, sys
r = json.load(sys.stdin)
print([k for k in r if k not in ("schema", "command", "version", "isa", "threads", "seed")])
print(sorted(r["system"]), r["environment"]["OMP_NUM_THREADS"])'
