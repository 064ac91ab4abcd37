# Pipes as input: read while a process writes to them; one without a writer is refused, not waited for.
mkfifo pipe.json pipe.csv pipe.npy pipe.mp4
mkdir clips && mkfifo clips/a.mp4 clips/b.txt && echo a disc >clips/a.txt
tessera info | grep -q '^  oneDNN' && train=1
small="--preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 --steps 1 -q"
# All at once, because each waits some seconds for a writer.
n=0
try() {
    n=$((n + 1))
    { timeout 60 tessera "$@" >out.$n 2>err.$n; echo "exit $?: $1" >>err.$n; } &
}
try simulate pipe.json
try plan --density pipe.csv --tokens 4096 --ranks 2
try plan --density "$CASES/../../share/profiles/wan2.1-14b.csv" --tokens 4096 --ranks 8 --cluster pipe.json
try validate pipe.csv
try bench --file pipe.json
try bench attn,dim=8,tokens=64 --compare pipe.json
try check --file pipe.json
try tensor pipe.npy
mkdir page && mkfifo page/metrics.jsonl
try report page
if [ "$train" ]; then
    try train $small --out run2 --settings pipe.json
    try train $small --out run3 --config pipe.json
    try data clips
    mkdir run4 && mkfifo run4/metrics.csv
    try train $small --out run4
else
    echo 'this build has no oneDNN' >&2
    exit 77
fi
wait
for i in $(seq $n); do cat err.$i >&2; done
# A writer that takes a second.
timeout 20 tessera train $small --out run --settings <(sleep 1; echo '{"seed": 4}') >out && grep -c '"seed": 4' run/settings.json
timeout 20 tessera simulate <(sleep 1; cat "$CASES/../../share/scenarios/wan2.1-14b-dsv-128.json") | grep -c throughput
# A writer that was there before, and waits for a reader.
cat "$CASES/../../share/scenarios/wan2.1-14b-dsv-128.json" >pipe.json &
timeout 20 tessera simulate pipe.json | grep -c throughput
# A writer that writes nothing: a signal ends the waiting.
sleep 30 >pipe.json &
python3 "$CASES/interrupt.py" TERM 'ls -l /proc/$PID/fd | grep -q pipe.json' tessera simulate pipe.json
echo "exit $?"
kill $!
