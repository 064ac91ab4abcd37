# A table of 10,000 configurations, groups and failing rows takes seconds, not the square of its rows; repeats are found.
# Long commands end within a second of CPU time after SIGTERM, with 143 and one sentence.
python3 - <<'END'
import random
random.seed(1)
head = "label,group,system.cluster,model.name,layout.gpus,layout.tp,training.global_batch,measured.step_ms\n"
rows = [f"r{i},g{i},a100-80,gpt-22b,8,{8 if i % 5 else 7},{8 * (i % 9000 + 1)},{1000 + i}\n" for i in range(10000)]
open("large.csv", "w").write(head + "".join(rows))
more = (f"r{i},,a100-80,gpt-22b,8,8,{8 * (i + 1)},{1000 + i}\n" for i in range(200000))
open("huge.csv", "w").write(head + "".join(more))
open("steps.csv", "w").write("step,layer,head,density\n" + "".join(
    f"{s},{l},{h},{random.random():.3f}\n" for s in range(400) for l in range(10) for h in range(40)))
with open("nccl.log", "w") as log:
    log.write("# Using devices\n" + "".join(f"#  Rank {i:2} Group  0 Pid {i:6} on node device {i:2} [0x00] A100\n"
                                            for i in range(8)))
    for i in range(300000):
        size = 4 * random.randrange(1, 1 << 26)
        log.write(f"{size} {size // 4} float sum -1 {size / 1e5 + 20:.2f} 1 1 0 {size / 1e5 + 20:.2f} 1 1 0\n")
END
(ulimit -t 30 && tessera validate large.csv --json) | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(r["rows"], r["scored"], len(r["skipped"]), len(r["quantities"]["step"]["groups"]))
print(sum(c["repeats"] for c in r["cases"]), [s["row"] for s in r["skipped"]] == list(range(1, 10000, 5)))'
stop() { # once it has computed for 0.3 s
    python3 "$CASES/interrupt.py" --cpu 1 TERM 'awk "{ exit \$14 + \$15 < 30 }" /proc/$PID/stat' tessera "$@" -q >out
    echo "exit $?"
}
stop validate huge.csv
stop calibrate huge.csv --params a100.gemm_share
stop plan --density steps.csv --ranks 64 --cluster a100-80
stop collective --op all_reduce --calibrate nccl.log --cluster a100-80 --out fitted.json
ls fitted.json 2>/dev/null
exit 0
