# A wrong value gets one sentence: the option, the value, the rule.
try()
{
    tessera "$@"
    echo "exit $?" >&2
}
try info --threads abc
try info --threads 0
try info -j 1025
try info -j
try info --seed=-1
try info --isa mmx
try info --json=yes
try doctor --disk 10X
try doctor --dir ""
try help --completion csh
try tensor x.npy --low abc
try tensor x.npy --dtype F99
try tensor x.npy --shard 5Q
