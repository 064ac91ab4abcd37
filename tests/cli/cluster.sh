# What is shipped, one of them with its origins, and a copy that is a cluster again.
tessera cluster list | grep -E '^(azure|h100|v100)'
tessera cluster list --json | python3 -c 'import json,sys; print([c for c in json.load(sys.stdin)["clusters"] if c["name"] == "h100"])'
tessera cluster show azure-ndv4
tessera cluster show v100 --isa base -j 2 --json --out v.json
tessera cluster show ./v.json | head -3
tessera cluster measure --quiet --out here.json >measured.txt
grep -c "not measured: start two ranks with mpirun" measured.txt
tessera cluster show ./here.json | grep -c assumed
