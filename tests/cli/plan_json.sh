# The result of a plan as JSON.
printf 'step,layer,head,Sparsity\n5,3,0,0.5\n5,3,1,0.25\n5,3,2,0.25\n' >p.csv
tessera plan --density p.csv --column Sparsity --ranks 2 --method db-sp --isa base -j 2 --json | sed 's/"plan_us_mean": .*/"plan_us_mean": T/'
