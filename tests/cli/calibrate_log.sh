# Logs of torchtitan, Megatron-LM and NeMo: what is read of them, the scalar that fits them, and a file that simulate takes.
software=$(tessera simulate --list software --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entries"][0]["name"])')
python3 - <<'END'
titan = open("titan.log", "w")
say = lambda text: titan.write(f"[rank0]:[titan] 2025-03-04 05:17:17,338 - root - INFO - {text}\n")
say("Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]")
say("Model llama3 8B size: 8,030,261,248 total parameters")
say("Applied selective activation checkpointing to the model")
say("Trainer is initialized with local batch size 1, global batch size 4, gradient accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200).")
for step in [1, *range(10, 110, 10)]:
    tps = 300 if step == 1 else 6000 + step
    for rank in range(2):  # both ranks print the step
        say(f"\033[31mstep: {step:2}  \033[32mloss:  8.01  \033[38mmemory: {40 + step / 100:5.2f}GiB(50.00%)  \033[34mtps: {tps:,}  \033[36mtflops: 350.25  \033[35mmfu: 35.00%\033[39m")
titan.close()
megatron = open("megatron.log", "w")
megatron.write("using world size: 16, data-parallel size: 8, tensor-model-parallel size: 2\n------------------------ arguments ------------------------\n")
for name, value in {"bf16": True, "global_batch_size": 64, "hidden_size": 4096, "micro_batch_size": 1, "num_attention_heads": 32, "num_layers": 32,
                    "padded_vocab_size": 50432, "seq_length": 4096, "sequence_parallel": True, "swiglu": False, "num_experts": None,
                    "tensor_model_parallel_size": 2, "use_distributed_optimizer": True, "world_size": 16}.items():
    megatron.write(f"  {name} {'.' * (48 - len(name))} {value}\n")
megatron.write("-------------------- end of arguments ---------------------\n")
for step in range(1, 21):
    ms = 90000 if step < 3 else 2500 + step
    megatron.write(f" [2024-04-06 02:55:45] iteration {step:8}/     100 | consumed samples: {64 * step:12} | elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 231.9 | global batch size:    64 | lm loss: 2.02E+00 |\n")
    if step == 1:
        megatron.write("[Rank 0] (after 1 iterations) memory (MB) | allocated: 100.5 | max allocated: 30720.0 | reserved: 200.0 | max reserved: 40960.0\n")
megatron.close()
nemo = open("nemo.log", "w")
for step in range(12):
    nemo.write(f" 0: Training epoch 0, iteration {step}/29 | lr: 5.389e-06 | global_batch_size: 64 | global_step: {step} | max_memory_reserved: 42949672960 | max_memory_allocated: 32212254720 | reduced_train_loss: 10.2 | train_step_timing in s: {2.6 if step else 80} | consumed_samples: 4608\n")
nemo.close()
END
cat >job.json <<'END'
{"schema": 1, "model": {"name": "gpt-7.5b", "seq": 4096}, "layout": {"gpus": 16, "tp": 2}, "training": {"global_batch": 64}, "system": {"cluster": "h100"}}
END
hide() { sed -E "s/predicted [0-9.]+/predicted N/g; s/scalar [0-9.]+$/scalar N/; s/(scalar of .*): [0-9.]+/\1: N/; s/[0-9.]+ %/N %/g; s/$software/SOFTWARE/g"; }
tessera calibrate --software $software --log titan.log -o titan.json | hide
tessera calibrate --software $software --log megatron.log --system ours -o ours.json | hide
tessera calibrate --software $software --log nemo.log --scenario job.json | hide
# The file gives back what was measured.
tessera calibrate --software $software --log megatron.log --system ours --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(sorted(r["logs"][0]), r["logs"][0]["used"], round(r["logs"][0]["step_ms"], 3), r["after_mean_abs_pct"] < 1e-6)'
python3 - $software <<'END'
import json, sys
p = json.load(open("ours.json"))
print([(s["system"], s["origin"]) for s in p["scalars"] if s["system"] == "ours"])
END
cat >gpt.json <<END
{"schema": 1, "model": {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 50432, "tied": true, "learned_positions": true, "seq": 4096}, "layout": {"gpus": 16, "tp": 2, "sequence": true},
 "training": {"global_batch": 64, "dropout": "on", "overlap_dp": "off", "distributed_optimizer": "on"}, "system": {"cluster": "h100", "era": "$software", "system": "ours"}}
END
tessera simulate gpt.json --params ours.json --json | python3 -c 'import json, sys; print(round(json.load(sys.stdin)["step_ms"], 1))'
# Two logs: the scalar lies between the two that fit each.
tessera calibrate --software $software --log megatron.log --log megatron.log --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["logs"]))'
try() { tessera calibrate "$@" || echo "exit $?"; }
try --log megatron.log
try --software $software
try --software no-such-thing --log megatron.log
try --software $software --log nemo.log
printf 'nothing\n' >empty.log
try --software $software --log empty.log
try --software $software --log megatron.log table.csv
try --software $software --log megatron.log --params a100.gemm_share
try --software $software --log megatron.log --set training.global_batch=128
