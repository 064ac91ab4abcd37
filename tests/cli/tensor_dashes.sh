# Behind -- everything is a file, and - alone is one, too.
python3 "$CASES/make.py" ./--json.npy a:F32:2:1
tessera tensor --no-stats -- --json.npy
tessera tensor --no-stats --json.npy
echo "exit $?"
tessera tensor -
echo "exit $?"
