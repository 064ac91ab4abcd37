# Linear layers, which need oneDNN.
tessera info | grep -q '^  oneDNN' || { echo "built without oneDNN" >&2 && exit 77; }
tessera check linear,m=300,n=100,k=70,pass=both | sed -E '1d; s/off by [^,]*/off by X/'
tessera bench linear,m=50,n=40,k=30 --samples 1 --json |
    python3 -c 'import json, sys; print(*(r["name"] for r in json.load(sys.stdin)["results"]))'
