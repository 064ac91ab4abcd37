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
echo "-- while the run goes on"
mkdir live
echo '{"seed": 0, "steps": 3, "preset": "tiny", "data": "shapes", "attention": "dsv"}' >live/settings.json
echo "2026-11-18T04:40:12Z tessera train --data 'my clips' --out live" >live/commands.txt
echo '{"step": 1, "loss": 0.5}' >live/metrics.jsonl
tessera report --watch --every 1 live >watched &
until [ -s live/report.html ]; do sleep 0.05; done
grep -c 'http-equiv="refresh" content="1"' live/report.html
printf '{"step": 2, "loss": 0.4}\n{"step": 3, "loss": 0.25}\n' >>live/metrics.jsonl
wait
cat watched
grep -c 'http-equiv="refresh"' live/report.html
grep -o '<title>.*</title>\|<dt>model.*\|<dt>data.*\|<dt>command.*\|<dt>date</dt><dd>begun [^,]*' live/report.html
echo '{"step": 2, "loss": 0.5}' >run/metrics.jsonl
timeout -s INT 2 tessera report --watch run
tessera report --watch --idle 1 run
tessera report --watch nowhere
ls
