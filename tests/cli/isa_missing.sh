# An instruction set this machine lacks is exit code 4, not a fallback.
case $(uname -m) in
aarch64) isa=avx2 ;;
*) isa=neon ;;
esac
tessera info --isa $isa 2>&1 | sed "s/$isa/ISA/; s/: an instruction set of .*/: WHY/"
exit "${PIPESTATUS[0]}"
