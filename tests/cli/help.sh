# The help of every command fits 79 columns, but for examples, exits with 0 and is that of
# `tessera help COMMAND`; what it says is compared in docs.sh.
for command in $(tessera help --markdown | sed -n 's/^## tessera \([a-z]*\)$/\1/p'); do
    tessera $command --help >help || echo "$command: exit $?"
    tessera help $command | cmp - help
    awk -v command=$command 'length > 79 && !/^  tessera / { print command ": too long: " $0 }' help
    echo "$command"
done
