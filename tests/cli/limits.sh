# Limits of the shell: file size, stack; and the name that ps and pkill know the process by.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
options="--preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 -q -j 2"
(ulimit -f 64 && tessera train $options --steps 2 --out run)
echo "exit $?"
ls -A run/checkpoints
(ulimit -s 64 && tessera info)
echo "exit $?"
(ulimit -S -s 64 && tessera train $options --steps 2 --out run2 | grep steps)
unset OMP_WAIT_POLICY GOMP_SPINCOUNT # without them the command executes itself again
tessera train $options --steps 1000000 --out run3 &
until [ -s run3/metrics.jsonl ]; do kill -0 $! || exit 1; sleep 0.05; done
cat /proc/$!/comm
{ kill -KILL $!; wait $!; } 2>/dev/null # the shell may name the killed job at either
exit 0
