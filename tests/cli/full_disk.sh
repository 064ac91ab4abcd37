# A result that cannot be written is a failure.
tessera --version >/dev/full
echo "exit $?"
tessera info >/dev/full
echo "exit $?"
tessera info --json >/dev/full
echo "exit $?"
tessera help --markdown >/dev/full
echo "exit $?"
