# Under a launcher rank 0 alone prints, and every rank leaves with the same exit code.
. "$CASES/mpi.bash"
launch() { "$mpirun" -n 2 bash -c '"$@"; echo $? >>codes' - "$@"; sort codes | uniq -c | tr -s ' '; rm codes; }
launch tessera --version | sed 's/^tessera .*/tessera N/'
launch tessera info -j 1 | grep -c '^tessera '
launch tessera doctor -j 1 --dir no/such/folder | grep '^problem  disk\|^ [0-9]'
launch tessera info --theads 1 2>&1
# The doctor asks all ranks.
launch tessera doctor -j 1 | grep -o '^fine *builds: all ranks\|: ranks 0-1, 2 threads\|ranks 0-1 with 2 threads\|^fine *links: [0-9]' |
    sed 's/ranks 0-1 with/: ranks 0-1,/; s/[0-9]$/N/'
launch tessera doctor -j 1 --json | sed '$d' | python3 -c 'import json, sys
found = json.load(sys.stdin)
print([host["ranks"] for host in found["hosts"]], found["links"]["latency_ns"] > 0, found["links"]["bandwidth"] > 0)'
# The machine as a cluster, with messages between its ranks.
launch tessera cluster measure -j 1 -o here.json | grep -o '^  messages\|^here.json\|^ [0-9].*'
tessera cluster show here.json | grep -o 'node *2 GPUs, MPI'
# Strategies over MPI: every rank's numbers reach rank 0.
launch tessera bench -j 1 --samples 1 --json context,links=mpi,heads=3,dim=16,tokens=131,density=0.3,group=16,pass=both |
    sed '$d' | python3 -c 'import json, sys
found = json.load(sys.stdin)
print(found["problem"])
for s in found["strategies"]:
    assert s["cpu_max_over_mean"] < 2 and s["seconds_attend"] > 0 and s["seconds_measured"] > 0, s
    print(s["words"], s["bytes_sent_most"] == s["bytes_modelled_most"] or s["key_bytes"] == s["union_bytes"])'
