# A folder that is not there is a problem, and exit code 1; what is merely worth knowing is not.
tessera doctor -j 1 --disk 1K | grep -c ' threads: '
echo "exit ${PIPESTATUS[0]}"
tessera doctor --dir no/such/folder | grep -A 1 '^problem'
echo "exit ${PIPESTATUS[0]}"
