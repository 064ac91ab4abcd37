# One rank that fails ends all of them: one message that names it, one exit code, within 10 seconds
# and twice the time that a run takes here and now.
. "$CASES/mpi.bash"
short=attn,heads=1,dim=16,tokens=64
long=attn,heads=8,dim=64,tokens=4096
# Sets the limit.
usual() {
    local start=$SECONDS
    timeout 120 "$mpirun" -n 3 tessera check $short -j 1 >out 2>&1 || cat out
    limit=$((10 + 2 * (SECONDS - start)))
}
usual
# Says so where too much time has passed since the start; others may have come meanwhile.
in_time() {
    local took=$((SECONDS - start))
    [ $took -le $limit ] || usual
    [ $took -le $limit ] || echo "took $took s"
}
# Prints what the ranks say, without what the launcher adds and the progress of slow machines.
said() { sed -n '/^tessera/{/ left$/!p}' err; }
# Prints the exit code and what the ranks say.
launch() {
    local start=$SECONDS
    timeout 120 "$mpirun" "$@" >out 2>err
    echo "exit $?"
    said
    in_time
}
echo "a mismatch on a rank that does not print"
launch -n 2 tessera check $short -j 1 : -n 1 tessera check $short -j 1 --tolerance 0 |
    sed -E 's/off by [^,]+/off by X/'
echo "a mismatch on two ranks: one message, of the one that came to it first"
launch -n 1 tessera check $short -j 1 : -n 2 tessera check $short -j 1 --tolerance 0 |
    sed -E 's/off by [^,]+/off by X/; s/rank [12]:/rank R:/'
echo "wrong usage on one rank, as of another version"
launch -n 2 tessera check $short -j 1 : -n 1 tessera check $short -j 1 --another 1
echo "a file that one rank lacks, while the others compute"
launch -n 2 tessera check $long --all -j 1 : -n 1 tessera check --file no/such/file -j 1

# Starts three ranks; rank 0 and those named compute for long, the others are soon done. They read
# what from pipes, which they open when all of them have met; their process numbers are then in
# pid.RANK.
begin() {
    rm -f pid.* problem.*
    mkfifo problem.{0,1,2}
    timeout 120 "$mpirun" -n 3 bash -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
        echo $$ >pid.$rank
        exec tessera check --file problem.$rank --all -j 1' >out 2>err &
    for rank in 0 1 2; do
        case " 0 $* " in *" $rank "*) echo $long ;; *) echo $short ;; esac >problem.$rank
    done
    sleep 0.5
    start=$SECONDS
}
# Waits until a rank has no more work: its main thread uses no time of a core worth mentioning.
waits() {
    local before=-1 now
    while now=$(awk '{print $14 + $15}' "/proc/$(cat pid.$1)/task/$(cat pid.$1)/stat"); do
        [ $((now - before)) -gt 3 ] || [ $before -lt 0 ] || break
        before=$now
        sleep 0.5
    done
}
# Waits for the launcher: it fails in time, and no rank is left but those that wait to be buried.
finish() {
    wait $! && echo "does not fail"
    said
    in_time
    for rank in 0 1 2; do # the launcher may end a moment before the ranks that it killed
        while grep -q '^State:.*[RSDT] ' "/proc/$(cat pid.$rank)/status" 2>/dev/null; do
            [ $((SECONDS - start)) -le $limit ] || { echo "rank $rank still runs"; break; }
            sleep 0.1
        done
    done
}
echo "a rank that is killed"
begin 1 2
kill -9 "$(cat pid.2)"
finish
echo "a rank that does not answer while another is stopped"
begin 1 2
kill -STOP "$(cat pid.0)"
kill -USR1 "$(cat pid.1)"
finish
echo "the same, where the other one has done its part and waits"
begin 2
waits 1
kill -STOP "$(cat pid.0)"
kill -USR1 "$(cat pid.1)"
finish
exit 0
