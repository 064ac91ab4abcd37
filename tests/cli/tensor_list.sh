# Types, shapes and ranges of each kind of file.
make() { python3 "$CASES/make.py" "$@"; }
make a.npy a:F32:2x3:1,-2.5,3,4,0,1e-5
make m.safetensors blocks.0.attn.q.weight:F32:64x32:0.25,-0.125 ids:I32:4:1,2,3,100000 \
    mask:BOOL:2x2:1,0 step:I64::7 empty:F32:0x3:0 half:F16:3:1.5,-2,0 double:F64:2:1e-300,1e300
make z.npz x:F32:3:1,2,3 y:U8:2x2:1,2,3,255
tessera tensor a.npy m.safetensors z.npz
echo ----
tessera tensor --no-stats --meta m.safetensors
echo ----
tessera tensor m.safetensors --name 'blocks.*' --name step
echo ----
tessera tensor m.safetensors --no-stats --json --name ids | sed 's/"version": "[^"]*"/"version": N/
    s/"isa": "[^"]*"/"isa": X/; s/"threads": [0-9]*/"threads": N/'
