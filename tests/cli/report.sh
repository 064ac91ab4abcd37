# The page of a run, and of what is none.
mkdir run
printf '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n' >run/metrics.jsonl
tessera report run
tessera report run -o page.html
cmp run/report.html page.html
tessera report run --json -o page.html | grep page
tessera report nowhere
echo $?
echo broken >run/metrics.jsonl
tessera report run -o other.html
echo $?
ls
