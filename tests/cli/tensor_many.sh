# A reader that leaves in the middle of a long list needs no sentence.
python3 "$CASES/make.py" many.safetensors $(seq -f 'layer.%g.weight:F32:2:1,2' 1 5000)
tessera tensor many.safetensors | head -n 3
tessera tensor many.safetensors --no-stats | tail -n 1
