# What is measured stands in the same columns everywhere; the numbers are the machine's.
numbers() { sed -E '1s/^[a-z0-9]+,/ISA,/; s/ +[0-9]+(\.[0-9]+)?x?/ N/g; s/ +-/ -/g; /disturbed|slower than dense/d'; }
tessera bench attn,dim=16,tokens=256,density=0.25,unit=16,group=32,pass=both -j 1 --samples 1 | numbers
tessera bench select,tokens=300 attn,dim=8,tokens=64 --samples 2 -j 2 | numbers
