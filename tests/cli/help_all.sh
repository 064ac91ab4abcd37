# The help of every command fits 79 columns and exits with 0.
tessera --help | sed 's/^tessera [0-9.]*:/tessera N:/'
for command in info doctor tensor check bench help; do
    echo "---- $command"
    tessera $command --help || echo "exit $?"
    tessera help $command | cmp - <(tessera $command -h)
    tessera $command --help | awk 'length > 79 { print "too long: " $0 }'
done
