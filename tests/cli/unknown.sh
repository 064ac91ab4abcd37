# What is not known gets a suggestion where one is near, and exit code 2.
try()
{
    tessera "$@"
    echo "exit $?" >&2
}
try inof
try xyzzy
try --josn
try -v
try info --measuer
try info --xyzzy
try info -x
try info extra
try help xyzzy
try help --markdown --man
