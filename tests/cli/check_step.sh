# Training steps of the model, which need oneDNN.
tessera info | grep -q '^  oneDNN' || { echo "built without oneDNN" >&2 && exit 77; }
tessera check step,batch=2,heads=2,dim=16,layers=2,ffn=50,tokens=30,text=7 | sed -E '1d; s/off by [^,]*/off by X/'
tessera check step,tokens=2000 2>&1 | sed -E 's/takes [^ ]*/takes X/'
tessera bench step,heads=1,dim=8,layers=1,ffn=9,tokens=7,text=3,keep=blocks,store=bf16 --samples 1 -j 1 |
    sed -E '1d; s/ +[0-9]+(\.[0-9]+)?/ N/g; s/ +-/ -/g; /disturbed/d'
tessera bench step,heads=1,dim=8,layers=1,ffn=9,tokens=7,text=3,pass=fwd --samples 1 --json |
    python3 -c 'import json, sys
r = json.load(sys.stdin)
print(r["results"][0]["name"], round(r["attention_share"] + r["linear_share"] + r["rest_share"], 6), r["step_bytes"] > 0)'
tessera bench step,dim=20
