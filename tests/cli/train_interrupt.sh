# Ctrl-C and SIGTERM write a checkpoint and exit with 130; --resume goes on from it.
tessera info | grep -q '^  oneDNN' || { echo 'this build has no oneDNN' >&2; exit 77; }
options="--preset tiny --frames 2 --height 16 --width 16 --batch 1 --validate-every 0 --steps 1000000"
for signal in INT TERM; do
    python3 "$CASES/interrupt.py" $signal '[ $(wc -l <run/metrics.jsonl) -ge 3 ]' \
        tessera train $options --out run -q 2>err
    echo "exit $?"
    sed -E 's/step-[0-9]+/step-N/' err
    done=$(wc -l <run/metrics.jsonl)
    ls run/checkpoints | grep -c "step-0*$done$"
    tessera train --out run --resume --steps $((done + 2)) -q | grep steps | grep -c $((done + 2))
    rm -r run
done
