# Colours on terminals only, and never with NO_COLOR.
escapes() { grep -c $'\033' || true; }
tessera doctor | escapes
export TERM=xterm
python3 "$CASES/terminal.py" --stdout tessera doctor | escapes | sed 's/[1-9][0-9]*/some/'
NO_COLOR=1 python3 "$CASES/terminal.py" --stdout tessera doctor | escapes
TERM=dumb python3 "$CASES/terminal.py" --stdout tessera doctor | escapes
