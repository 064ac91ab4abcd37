# A signal that the launcher passes on ends training on all ranks with a checkpoint; another number of ranks resumes.
. "$CASES/mpi.bash"
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
options="--preset tiny --frames 2 --height 16 --width 16 --batch 2 --validate-every 0 --cluster h100 --out run -q -j 1"
"$mpirun" -n 2 bash -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    exec tessera train '"$options"' --steps 1000000' >out 2>err &
while kill -0 $! && [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -lt 3 ]; do sleep 0.1; done
kill -USR1 "$(cat pid.1)" # one rank alone is signalled
wait $!
echo "exit $?"
grep '^tessera' err | sed -E 's/step-[0-9]+/step-N/'
done=$(wc -l <run/metrics.jsonl)
ls run/checkpoints | grep -c "step-0*$done$"
tessera train $options --resume --steps $((done + 2)) | grep steps | grep -c $((done + 2))
# A signal that reaches one rank before its first step, while plans are made: that rank is named, the exit code is of
# the signal. The rank is signalled as soon as it waits for signals, which it blocks then.
"$mpirun" -n 2 bash -c '[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ] || {
    me=$BASHPID
    (until grep -q "^SigBlk:.*420[23]$" /proc/$me/status; do sleep 0.01; done; kill -TERM $me) &
}
    exec tessera train '"${options/--out run/--out early}"' --steps 2' >out 2>err
echo "exit $?"
grep '^tessera' err
