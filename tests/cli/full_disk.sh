# A result that cannot be written is a failure.
tessera --version >/dev/full
echo "exit $?"
tessera info >/dev/full
echo "exit $?"
tessera info --json >/dev/full
echo "exit $?"
tessera help --markdown >/dev/full
echo "exit $?"
python3 "$CASES/make.py" a.npy a:F32:2x3:1,2
tessera tensor a.npy >/dev/full
echo "exit $?"
