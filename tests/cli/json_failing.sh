# A failure with --json is one object on stdout, and the sentence on stderr.
tessera info --json --threads abc | sed 's/"version": "[^"]*"/"version": N/'
echo "exit ${PIPESTATUS[0]}"
TESS_THREADS=many tessera info --json | sed 's/"version": "[^"]*"/"version": N/'
echo "exit ${PIPESTATUS[0]}"
