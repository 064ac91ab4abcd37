# Job files of torchtitan and Megatron-LM as scenarios: what is read, assumed, not modelled, unknown.
cat >job.toml <<'END'
# A job of torchtitan
[job]
description = "Llama 3 8B"
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
steps = 1000
shuffle_window = 7
[parallelism]
data_parallel_shard_degree = -1
[compile]
enable = true
END
cat >train.sh <<'END'
#!/bin/bash
TP=2
ARGS=(
    --num-layers 32      # depth
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 4096
)
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py ${ARGS[@]} \
    --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 64 \
    --bf16 --train-iters 500 --attention-dropout 0.0 --hidden-dropout 0.0 \
    --overlap-param-gather --quantum-flux 3 --data-path $1
END
# Software is left out: which one is the newest changes.
tessera simulate job.toml | sed -n '/^read as/,/^step/p' | grep -v 'system.era\|^step\|^ *\(with \)*torchtitan'
tessera simulate train.sh | sed -n '/^read as/,/^step/p' | grep -v 'system.era\|^step\|begins with megatron'
tessera simulate job.toml --set layout.gpus=64 --set system.cluster=h200 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
job = r["job"]
print(job["framework"], sorted(job), r["run"]["steps"], r["scenario"]["training.global_batch"])
print([e["setting"] for e in job["assumed"] if e["setting"] in ("layout.gpus", "system.cluster")])
print([(e["key"], e["line"]) for e in job["unknown"]], [e["key"] for e in job["unmodelled"]])
print({e["key"]: (e["setting"], e["value"]) for e in job["read"]})'
# The same job as a scenario of our own has the same step.
tessera simulate train.sh --json | python3 -c '
import json, subprocess, sys
r = json.load(sys.stdin)
given = {k: v for k, v in r["scenario"].items()}
groups = {}
for key, value in given.items():
    group, name = key.split(".")
    groups.setdefault(group, {})[name] = value
json.dump({"schema": 1, **groups}, open("same.json", "w"))
same = json.loads(subprocess.check_output(["tessera", "simulate", "same.json", "--json"]))
print("same step", same["step_ms"] == r["step_ms"])'
sed 's/8B"/13B"/' job.toml >other.toml
tessera simulate other.toml --set model.name=llama2-13b --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["scenario"]["model.layers"], r["scenario"]["model.seq"])'
try() { tessera simulate "$@" || echo "exit $?"; }
try other.toml
try missing.toml
printf '[training]\nseq_len = long\n' >bad.toml && try bad.toml
printf '[model]\nflavor = "8B"\n[training]\nseq_len = "long"\n' >bad.toml && try bad.toml
printf 'echo nothing\n' >bad.sh && try bad.sh
tessera simulate train.sh --search --over layout.tp=1,2,4 | head -1
