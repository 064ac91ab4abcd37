# Exit code 1 if there is a problem, whatever the machine; a folder that is not there is one.
tessera doctor -j 1 --disk 1K >found
code=$?
grep -c ' threads: ' found
if [ "$code" = "$(($(grep -c '^problem' found) > 0))" ]; then echo agrees; else cat found; fi
tessera doctor --dir no/such/folder | grep -A 1 '^problem  disk'
echo "exit ${PIPESTATUS[0]}"
