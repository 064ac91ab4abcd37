# One size, a sweep in nccl-tests' form, and a cluster fitted to that form.
tessera collective --bytes 64M --gpus 16 --cluster azure-ndv4
tessera collective --op send_receive --bytes 64M --gpus 2 --per-node 1 --cluster h100 --isa base -j 2 --json
tessera collective --begin 1K --end 1G --factor 16 --gpus 4 --cluster azure-ndv4 | tee a.log
tessera collective --op all_gather --begin 1M --end 4M --cluster h200 --isa base -j 2 --json
tessera collective --calibrate a.log --cluster a100-80 --out c.json
tessera collective --calibrate a.log --calibrate a.log --cluster a100-80 --out c.json --isa base -j 2 --json
tessera collective --bytes 1G --gpus 4 --cluster ./c.json
tessera cluster show ./c.json | tail -2
