# Runs side by side: text, JSON, page, and what cannot be compared.
run() { # FOLDER SEED ATTENTION END
    mkdir -p "$1"
    echo "{\"seed\": $2, \"attention\": \"$3\", \"steps\": 4}" >"$1/settings.json"
    for step in 1 2 3 4; do
        val=null buckets=null
        [ $((step % 2)) = 1 ] || { val=$((5 - step)).$4; buckets="[0.$4, 1.$4, 2.$4, 3.$4]"; }
        echo "{\"step\": $step, \"loss\": $((6 - step)).$4, \"step_ms\": 250, \"attention_ms\": 100, \"val_loss\": $val, \"val_buckets\": $buckets}"
    done >"$1/metrics.jsonl"
}
run dense-0 0 dense 500
run dense-1 1 dense 520
run dense-2 2 dense 480
run dsv-0 0 dsv 501
run dsv-1 1 dsv 523
run dsv-2 2 dsv 481
printf '{"step": 3, "layer": 0, "event": "switch"}\n{"step": 4, "layer": 0, "head": 1, "event": "back"}\n' >dsv-1/events.jsonl
tessera compare dense-0 dense-1 dense-2 dsv-0 dsv-1 dsv-2 -o page.html
ls page.html
echo "-- other names, a stricter margin"
tessera compare d* --label 'ours=dsv-[01]' --label 'theirs=dense-*' --margin 0.01 --baseline ours
echo "-- long names: no table is wider than 80 columns"
mkdir long
for seed in 0 1; do
    cp -r dense-$seed long/dense-$seed
    cp -r dsv-$seed long/dsv-$seed
    sed -i 's/"steps"/"predictor": "hidden-plain", "steps"/' long/d*-$seed/settings.json
    cp -r long/dsv-$seed long/other-$seed
    sed -i 's/hidden-plain/qk/; s/}/, "max-density": 0.25, "lr": 0.00012345}/' long/other-$seed/settings.json
done
tessera compare long/* --baseline dense | tee long.txt
awk 'length > 80' long.txt
echo "-- JSON"
tessera compare dense-0 dsv-0 --json | grep -v '"version"\|"isa"\|"threads"' | head -n 40
echo "-- what is wrong"
tessera compare dense-0 --label nothing
tessera compare dense-0 --label 'none=./dense-*'
tessera compare dense-0 --baseline dsv
tessera compare nowhere
tessera compare
