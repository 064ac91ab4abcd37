# Long commands end within a second of CPU time after SIGTERM, with 143 and one sentence: ranks that are threads,
# measured peaks, sampling, profiles, searches, clips that are read.
stop() { # once it has computed for 0.5 s
    echo "$1 $2" | cut -d, -f1
    python3 "$CASES/interrupt.py" --cpu 1 TERM 'awk "{ exit \$14 + \$15 < 50 }" /proc/$PID/stat' tessera "$@" -q 2>&1 >out | sed '/so far nothing\|simulate: interrupted/d' >&2
    echo "exit ${PIPESTATUS[0]}"
}
stop bench context,heads=8,dim=128,tokens=16384,ranks=8,density=0.5,group=64
stop check context,heads=8,dim=128,tokens=8192,ranks=4,density=0.5,group=64
stop cluster measure -o here.json
batches=$(seq -s, 96 96 96000)
stop simulate gpt-175b-96 --search --exhaustive --over layout.tp=1,2,4,8 --over layout.pp=1,2,3,4,6,8,12 \
    --over training.recompute=none,selective,full --over training.global_batch="$batches" --over training.micro_batch=1,2,3,4,6,8 --over system.cluster=a100-80,h100
ls here.json 2>/dev/null
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
stop bench step,heads=8,dim=64,tokens=4096,layers=2,ranks=2
tessera train --preset tiny --steps 1 --frames 4 --height 16 --width 16 --validate-every 0 --out run -q >/dev/null
stop sample run --count 10000 -o x.npy
stop profile run --clips 10000 -o x.html
python3 - <<'END'
import os
os.mkdir("clips")
with open("clips/a.y4m", "wb") as f:
    f.write(b"YUV4MPEG2 W64 H64 F24:1 Ip A1:1 C420jpeg\n" + (b"FRAME\n" + bytes(64 * 64 * 3 // 2)) * 300)
for i in range(3000):
    os.link("clips/a.y4m", f"clips/b{i}.y4m")
END
stop data clips
ls x.npy x.html 2>/dev/null
exit 0
