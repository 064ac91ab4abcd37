# Wrong input gets one sentence and exit 2, and nothing is written.
try() { tessera collective "$@" || echo "exit $?"; }
try
try --bytes 1M --begin 2M --end 4M
try --begin 2M
try --begin 4M --end 2M
try --bytes 1M --out c.json
try --calibrate a.log
try --calibrate a.log --bytes 1M --out c.json
try --calibrate missing.log --out c.json
printf '8 2 float sum -1 1 1 1 0 1 1 1 0\n' >a.log
try --calibrate a.log --out c.json
printf '# Rank 0 Pid 1 on a device 0\n# Rank 1 Pid 1 on a device 0\n8 2 float sum\n' >a.log
try --calibrate a.log --out c.json
try --bytes 1M --cluster h10
try --bytes 1M --gpus 16 --per-node 9 --cluster h100
try --bytes 1M --op reduce
tessera cluster || echo "exit $?"
tessera cluster list h100 || echo "exit $?"
tessera cluster show || echo "exit $?"
tessera cluster show nothing.json || echo "exit $?"
tessera cluster measure h100 || echo "exit $?"
ls
