# Where the time of GPUs goes: one rank, two ranks, collectives as CSV, and what is wrong with some.
event() { # category name ts dur args
  printf '{"ph": "X", "cat": "%s", "name": "%s", "pid": 0, "tid": 7, "ts": %s, "dur": %s, "args": {%s}}' "$@"
}
nccl='"stream": 9, "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16", "Process Group Ranks": "[0, 1]"'
rank() { # rank, when its compute ends
  printf '{"schemaVersion": 1, "distributedInfo": {"rank": %s, "world_size": 2}, "traceEvents": [\n' "$1"
  event kernel ampere_sgemm_128x64_tn 1000.5 "$(($2 - 1000)).25" '"stream": 7'
  echo ,
  event kernel 'void at::native::vectorized_elementwise_kernel<4>(int)' "$2.75" 100.125 '"stream": 7'
  echo ,
  event kernel 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL' "$2" "$((3000 - $2))" "$nccl"
  echo ,
  event gpu_memcpy 'Memcpy DtoH (Device -> Pinned)' 3100 20 '"stream": 11, "bytes": 4096'
  echo ,
  event user_annotation 'ProfilerStep#12' 900 5000 ''
  echo ']}'
}
rank 0 2000 > rank0.json
rank 1 2600 > rank1.json
tessera trace rank0.json
tessera trace rank0.json rank1.json --collectives calls.csv --html page.html
cat calls.csv
grep -c '<figure' page.html
gzip -nc rank1.json > packed
tessera trace packed --step 12 --isa base -j 2 --json
tessera collective --calibrate calls.csv --cluster h100 --out mine.json
# A file that is cut keeps what it has; the same rank twice is a note; other input gets one sentence.
head -c 700 rank0.json > cut.json
tessera trace cut.json
tessera trace rank0.json rank0.json
try() { tessera trace "$@" || echo "exit $?"; }
try
try missing.json
try rank0.json --step 13
try rank0.json --rank 0,1
try rank0.json rank1.json --rank 0
echo '{"traceEvents": [1 2]}' > bad.json
try bad.json
echo '[]' > a.json
echo '[]' > b.json
try a.json b.json
tessera trace a.json b.json --rank 4,5
