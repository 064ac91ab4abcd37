# What is wrong with a problem is one sentence; from a file it names the line.
try()
{
    tessera "$@"
    echo "exit $?" >&2
}
try check
try bench attn,hads=8
try check attn,dim=20
try check attn,tokens=0
try bench attn,pass=up
try check atn
try check attn,precision=fp8
try check attn,tokens=2147483647,heads=3 2>&1 | sed -E 's/and .* are/and N are/' >&2
printf 'attn\n# fine\nselect,rank=12\n' >bad.txt
try bench --file bad.txt
try bench --file missing.txt
printf '# nothing\n' >empty.txt
try check --file empty.txt
try bench attn --samples 0
echo '{"command": "info", "isa": "avx2"}' >other.json
try bench attn,tokens=8 --compare other.json
echo '{' >broken.json
try bench attn,tokens=8 --compare broken.json
