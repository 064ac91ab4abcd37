# Lengths of schedules by name and from files, and what is wrong with some.
tessera pipeline --schedule 1f1b --stages 4 --batches 8
tessera pipeline --schedule zb-v --stages 4 --batches 8 --hop-us 12.5 --isa base -j 2 --json
tessera pipeline --schedule interleaved-zb --stages 2 --chunks 2 --batches 4 --schedule-out s.csv
cat s.csv
tessera pipeline --schedule ./s.csv --forward-us 1,2,3,4.001 --input-us 1 --weight-us 2 --timeline t.json
grep -c '"cat":"compute"' t.json
tessera pipeline --schedule interleved --stages 4 --batches 8
tessera pipeline --schedule 1f1b --stages 4
tessera pipeline --schedule ./s.csv --stages 3
tessera pipeline --schedule 1f1b --stages 4 --batches 8 --forward-us 1,2
printf '0B0,0F0\n' > d.csv
tessera pipeline --schedule d.csv
