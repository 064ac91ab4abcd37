# scripts/two-hosts: ranks of two network namespaces, one wire between them, nothing left behind.
two=$CASES/../../scripts/two-hosts
tessera info | grep -q 'MPI *found' || { echo "the build has no MPI" >&2; exit 77; }
"${MPIEXEC:-mpirun}" --version 2>&1 | grep -q 'Open MPI\|OpenRTE' || { echo "needs Open MPI" >&2; exit 77; }
probe=tess-probe-$$
{ ip netns add $probe && ip -n $probe link add v0 type veth peer name v1 &&
    tc -n $probe qdisc add dev v0 root tbf rate 1gbit burst 256kb latency 100ms; } 2>/dev/null
usable=$?
ip netns del $probe 2>/dev/null
[ $usable = 0 ] || { echo "needs root, ip and tc" >&2; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1
"$two"; echo "exit $?"
"$two" 1 hostname; echo "exit $?"
"$two" 3 hostname | sort | uniq -c | tr -s ' '
# A wire of 200 Mbit/s passes 0.025 GB/s, and what its bucket holds at the start.
"$two" --rate 200mbit 2 tessera doctor -j 1 --json | python3 -c 'import json, sys
found = json.load(sys.stdin)
rate = found["network"]["bandwidth"]
print([(host["host"], host["ranks"]) for host in found["hosts"]], rate if not 0 < rate < 0.03e9 else "shaped")'
"$two" 2 sh -c 'exit 5' 2>/dev/null; echo "exit $?"
"$two" 2 sh -c 'echo $$ >>pids; exec sleep 100' 2>/dev/null &
while kill -0 $! && [ "$(cat pids 2>/dev/null | wc -l)" != 2 ]; do sleep 0.1; done
ip netns list | grep -c "^tess-$!-"
kill -TERM $!; wait $!; echo "exit $?"
ip netns list | grep -c "^tess-$!-"
for pid in $(cat pids); do # what was killed may take a moment to go
    for i in {1..100}; do grep -q '^State:.*[RSD] ' /proc/$pid/status 2>/dev/null || continue 2; sleep 0.1; done
    echo "$pid still runs"
done
exit 0
