# TESS_ISA and TESS_THREADS are read where no option is given, and checked.
field() { python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["isa"], o["threads"])'; }
TESS_ISA=base TESS_THREADS=3 tessera info --json | field
TESS_ISA=base TESS_THREADS=3 tessera info --json --isa wide -j 1 | field
TESS_THREADS=0 tessera info
echo "exit $?" >&2
TESS_ISA=mmx tessera info
echo "exit $?" >&2
