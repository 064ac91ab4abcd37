# Round trips between kinds and element types keep every value that both can hold.
make() { python3 "$CASES/make.py" "$@"; }
make m.safetensors w:F32:4x2:1,-2,0.5,0.125 b:F32:3:nan,inf,-inf ids:I32:3:0,1,-7
rows() { tessera tensor "$@" | tail -n +3; }
rows m.safetensors >before
for out in x.npz y.safetensors z.safetensors.index.json; do
    tessera tensor m.safetensors -o $out | sed 's/, [0-9.]* K*i*B$/, SIZE/'
    rows $out | diff before -
done
tessera tensor m.safetensors -o packed.npz --compress >/dev/null && rows packed.npz | diff before -
tessera tensor m.safetensors --name w -o w.npy >/dev/null && rows w.npy
tessera tensor w.npy x.npz --name b --name w -o both.safetensors 2>&1
tessera tensor m.safetensors --name 'w' --name b --dtype bf16 -o bf16.safetensors >/dev/null
rows bf16.safetensors
tessera tensor bf16.safetensors --dtype F32 -o back.safetensors >/dev/null
rows back.safetensors | diff <(grep F32 before) - && echo "back"
tessera tensor y.safetensors --meta --no-stats | grep format
# In place: the file is replaced when the new one is complete.
tessera tensor y.safetensors --name ids -o y.safetensors >/dev/null && rows y.safetensors
ls
