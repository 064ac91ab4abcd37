# A disk that is full while a checkpoint is written: one sentence, exit 1, the last checkpoint intact.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
unshare -rm true 2>/dev/null || { echo 'no file system can be mounted here' >&2; exit 77; }
cat >inside.sh <<'END'
mount -t tmpfs -o size=3m none disk || exit 77
tessera train --preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 --steps 100 \
    --checkpoint-every 1 --keep 0 --out disk/run -q -j 1
echo "exit $?"
[ -z "$(ls -A disk/run/checkpoints | grep -v '^step-0000')" ] && echo "nothing half made"
tessera sample disk/run --steps 1 -o clip.npy -j 1 -q >sampled && echo "the last one can be sampled"
END
mkdir disk
unshare -rm bash inside.sh 2>err
code=$?
sed -E 's/step-[0-9]+/step-N/; s#tmp/[^:]*#tmp/FILE#' err >&2
exit $code
