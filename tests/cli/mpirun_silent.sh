# A rank that is stopped, not killed: a line that names it, then an end by --rank-timeout, also where it is rank 0.
# Ranks with other commands or other folders: one sentence.
. "$CASES/mpi.bash"
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
options="--preset tiny --frames 2 --height 16 --width 16 --batch 2 --validate-every 0 --cluster h100 -j 1"
# In a folder of its own, for all of this waits.
silent() {
    mkdir "stopped.$1" && cd "stopped.$1" || exit
    echo "rank $1 is stopped"
    timeout 200 "$mpirun" -n 2 bash -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        exec tessera train '"$options"' --steps 1000000 --out run --rank-timeout 10' >out 2>err &
    while kill -0 $! && [ "$(cat run/metrics.jsonl 2>/dev/null | wc -l)" -lt 3 ]; do sleep 0.1; done
    kill -STOP "$(cat "pid.$1")"
    wait $! && echo "does not fail"
    grep 'answered' err | sed -E 's/for [0-9]+ s/for N s/' | uniq
    for rank in 0 1; do kill -9 "$(cat pid.$rank)" 2>/dev/null; done
}
(silent 0) >silent.0 &
(silent 1)
wait
cat silent.0
echo "other commands and folders"
try() { timeout 100 "$mpirun" "$@" >out 2>err; echo "exit $?"; grep '^tessera' err; }
try -n 1 tessera train $options --steps 1 --out a : -n 1 tessera train $options --steps 1 --out b
try -n 1 tessera train $options --steps 1 --out a : -n 1 tessera sample a --output b.npy
ls -d a b 2>/dev/null
exit 0
