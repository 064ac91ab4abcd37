# A second trainer in the folder of a run in progress: one sentence; the first goes on, and no step is there twice.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
options="--preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 --checkpoint-every 2 -q -j 1"
tessera train $options --steps 1000000 --out run &
first=$!
until [ -f run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -ge 5 ]; do kill -0 $first || exit 1; sleep 0.05; done
for more in --resume ''; do
    tessera train $options --steps 20 --out run $more 2>err
    echo "exit $?"
    sed "s/process $first on host $(uname -n);/process N on host HOST;/" err
done
{ kill -KILL $first; wait $first; } 2>/dev/null # the shell may name the killed job at either
ls run
sed 's/,.*//' run/metrics.csv | sort -n | uniq -d
tessera train --out run --resume --steps $(($(wc -l <run/metrics.jsonl) + 2)) -q >out && ls run
echo "the lock of a killed run: of this host, and of another one, whose locks may not reach this one"
for host in "$(uname -n)" elsewhere; do
    echo "process 1 on host $host" >run/lock
    tessera train --out run --resume --steps $(($(wc -l <run/metrics.jsonl) + 1)) -j 1 2>&1 >out | grep lock
    [ -e run/lock ] && echo "a lock is left"
done
exit 0
