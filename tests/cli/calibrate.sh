# Parameters are fitted to a table, printed before and after, and written; unknown names are refused.
cat >t.csv <<'END'
label,model.name,layout.tp,training.micro_batch,system.cluster,system.era,measured.step_ms
a,gpt-22b,8,1,a100-80,megatron-2022,500
b,gpt-39b,8,1,a100-80,megatron-2022,900
END
tessera calibrate t.csv --params a100.gemm_share,megatron-2022.host_step_ms --leave-one-out -o p.json |
    sed 's/[0-9.]\+ %/N %/g; s/[0-9.e+-]* -> .*/N -> N/; s/  *N/ N/'
python3 -c '
import json
p = json.load(open("p.json"))
print(p["schema"], p["hardware"]["a100"]["values"]["gemm_share"][0] > 0)'
tessera validate t.csv --params p.json --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["scored"])'
try() { tessera calibrate "$@" || echo "exit $?"; }
try t.csv
try t.csv --params a100.gemm_shaer
try missing.csv --params a100.gemm_share
try t.csv --params a100.gemm_share --quantity layer
# Kernels alone and beside communication: slowdowns follow from totals, and a kernel is left out at a time.
cat >k.csv <<'END'
gpu,kernel,isolated_ns,overlapped_ns,overlap_ratio
A100,ampere_sgemm,1000,1100,1
A100,cutlass_gemm,1000,1300,1
A100,cutlass_gemm,1000,990,0
A100,reduce_kernel,100,120,0.5
END
tessera calibrate k.csv --quantity overlap --leave-one-out -o k.json
tessera validate k.csv --params k.json
tessera validate k.csv --params k.json --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["quantity"], r["scored"], [round(c["predicted"], 3) for c in r["cases"]], {m: round(s["total_pct"], 2) for m, s in r["overlap"].items()})'
try k.csv --quantity overlap --params a100.gemm_share
try t.csv --quantity overlap
