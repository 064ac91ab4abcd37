# Ctrl-C during the statistics of a large file ends it soon, with 130; SIGTERM with 143.
python3 "$CASES/make.py" big.safetensors big:F32:20000000000
interrupt() { python3 "$CASES/interrupt.py" "$1" 'grep -q big.safetensors /proc/$PID/maps' "${@:2}"; }
interrupt INT tessera tensor big.safetensors
echo "exit $?"
interrupt TERM tessera tensor big.safetensors --json | sed 's/"version": "[^"]*"/"version": N/'
echo "exit ${PIPESTATUS[0]}"
