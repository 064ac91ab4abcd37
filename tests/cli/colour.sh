# Colours on terminals only, and never with NO_COLOR.
python3 -c 'import pty; pty.openpty()' 2>/dev/null ||
    { echo "no pseudo-terminal can be opened here" >&2; exit 77; }
escapes() { grep -c $'\033' || true; }
tessera doctor | escapes
export TERM=xterm
python3 "$CASES/terminal.py" --stdout tessera doctor | escapes | sed 's/[1-9][0-9]*/some/'
NO_COLOR=1 python3 "$CASES/terminal.py" --stdout tessera doctor | escapes
TERM=dumb python3 "$CASES/terminal.py" --stdout tessera doctor | escapes
