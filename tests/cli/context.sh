# Attention over ranks that are threads: every strategy agrees with one rank, sends what the cost
# model counts, and selected keys alone where only they are needed. Times are the machine's.
cat >table.py <<'END'
import json, sys
o = json.load(sys.stdin)
for run in o.get("problems", [o]):
    print(run["problem"])
    assert run["rates"].startswith("rates measured: attention ")
    assert run["choice"].startswith("1 layer ") and run["seconds_best"] > 0
    for s in run["strategies"]:
        if not s["possible"]:
            print(" ", s["strategy"], s["reason"])
            continue
        print(" ", s["strategy"], "as", s["words"])
        assert s["seconds_measured"] > 0 and s["seconds_predicted"] > 0 and s["cpu_max_over_mean"] >= 1
        if "union_bytes" in s:
            assert s["key_bytes"] == s["union_bytes"], s
        else:
            assert s["bytes_sent_most"] == s["bytes_modelled_most"], s
END
tessera check context,ranks=4,heads=3,dim=16,tokens=131,density=0.3,unit=4,group=16,pass=both |
    sed -E 's/off by [^,]*/off by X/; 1s/^.*, [0-9]+ threads?$/ISA, N threads/'
tessera bench context,ranks=4,heads=3,dim=16,tokens=256,density=0.25,group=32 \
    context,ranks=2,heads=4,dim=16,tokens=200,lists=local,density=0.2,group=20,pass=both,node_ranks=1 \
    --samples 1 --json | python3 table.py
tessera bench context,strategy=rign,ranks=2,dim=8,tokens=64
echo "exit $?"
alone='this build has no MPI'
tessera info | grep -q 'MPI *found' && alone='there is one rank; start several, with mpirun -n 4 tessera bench ...'
tessera bench context,links=mpi 2>&1 | grep -c "links is mpi, but $alone$"
echo "exit ${PIPESTATUS[0]}"
tessera check context,links=mpi
echo "exit $?"
