# The completion for bash, as readline calls it.
source <(tessera help --completion bash)
complete -p tessera
try()
{
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _tessera
    echo "$*: ${COMPREPLY[*]}"
}
try tessera ""
try tessera d
try tessera info --m
try tessera info --isa av
try tessera info --isa = b
try tessera info -j ""
try tessera doctor --dir ""
try tessera help --completion z
try tessera help i
try tessera tensor --no
try tessera tensor x.npy --dtype B
