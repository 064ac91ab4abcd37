# Every kind of problem agrees with double precision; what differs by machine is the error itself.
numbers() { sed -E 's/off by [^,]*/off by X/; 1s/^.*, [0-9]+ threads?$/ISA, N threads/'; }
cat >list.txt <<'END'
# a comment, and an empty line

select,tokens=700,density=0.2       # choosing
  select,kind=oracle,tokens=300,heads=2
select,kind=pooled,unit=16,tokens=600
END
tessera check attn,heads=2,dim=64,tokens=100,pass=both \
    attn,dim=72,tokens_q=90,tokens_k=300,density=0.1,unit=1,group=16,pass=bwd,storage=bf16,layout=bshd \
    --file list.txt --seed 3 | numbers
echo "exit ${PIPESTATUS[0]}"
# A tolerance that nothing meets is a mismatch: exit code 3.
tessera check attn,dim=16,tokens=50 --tolerance 1e-12 | numbers
echo "exit ${PIPESTATUS[0]}"
# A large problem has rows chosen, and the choice depends on the seed alone.
tessera check attn,heads=3,dim=64,tokens=2048,density=0.9,pass=bwd,group=128 | numbers
# Queries with one key: dq and dk are 0, and what rounding leaves is measured against the terms that cancel.
tessera check attn,heads=2,dim=64,tokens_q=64,tokens_k=1,pass=both | numbers
tessera check attn,heads=2,dim=64,tokens_q=64,tokens_k=64,density=0.01,unit=1,group=16,pass=both --all | numbers
# Tokens of a text: lists of two lengths, and queries with all keys.
tessera check attn,heads=2,dim=32,tokens=200,density=0.1,unit=1,group=16,compensate=4,text=20,pass=both --all | numbers
tessera check attn,tokens=10,text=11 2>&1
echo "exit $?"
