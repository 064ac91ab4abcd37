# groff has nothing to complain about in the manual page.
command -v groff >/dev/null || { echo "groff is not installed" >&2; exit 77; }
tessera help --man | groff -man -ww -Tascii -P-cbou -rLL=78n | grep -A 1 -E '^[A-Z]+'
