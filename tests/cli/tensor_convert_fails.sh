# A conversion that cannot be done leaves what was there, and no half a file.
make() { python3 "$CASES/make.py" "$@"; }
make m.safetensors w:F32:2:1,2 b:F32:2:0.5
echo precious >out.npy
try() { tessera tensor m.safetensors "$@"; echo "exit $?" >&2; }
try -o out.npy
try -o out.txt
try -o no/such/folder/out.npz
try --name w --dtype bf16 -o out.npy
try --name w --dtype f99 -o out.npz
try --dtype bf16
try --shard 1G
try --compress
try --shard 0 -o out.npz
# Members of a .npz that would be unpacked elsewhere; dots inside of a name are harmless.
make up.safetensors ../../up:F32:2:1,2
make root.safetensors /root:F32:2:1,2
make inner.safetensors 'a\..\b:F32:2:1,2'
make dots.safetensors a/..b/c...:F32:2:1,2
for name in up root inner dots; do tessera tensor $name.safetensors -o $name.npz >/dev/null; echo "exit $?" >&2; done
tessera tensor up.safetensors -o up2.safetensors >/dev/null; echo "exit $?" >&2
cat out.npy
ls
