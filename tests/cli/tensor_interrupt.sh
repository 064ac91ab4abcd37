# Ctrl-C during the statistics of a large file ends it soon, with 130; SIGTERM with 143.
# (--foreground: else timeout signals its group as well, and the second signal ends at once.)
python3 "$CASES/make.py" big.safetensors big:F32:20000000000
SECONDS=0
timeout --foreground --preserve-status -s INT 0.5 tessera tensor big.safetensors
echo "exit $?"
timeout --foreground --preserve-status -s TERM 0.5 tessera tensor big.safetensors --json | sed 's/"version": "[^"]*"/"version": N/'
echo "exit ${PIPESTATUS[0]}"
((SECONDS < 10)) || echo "took $SECONDS s"
