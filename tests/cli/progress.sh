# On a terminal the progress is one line, rewritten, never wider than the terminal, erased at the end.
python3 -c 'import pty; pty.openpty()' 2>/dev/null ||
    { echo "no pseudo-terminal can be opened here" >&2; exit 77; }
python3 "$CASES/make.py" a_file_with_a_name_that_is_long_enough_to_be_cut.npy big:F32:20000000000
TERM=xterm python3 - <<'END'
import os, subprocess, sys, time
command = ["tessera", "tensor", "a_file_with_a_name_that_is_long_enough_to_be_cut.npy"]
terminal = [sys.executable, os.environ["CASES"] + "/terminal.py"]
stop = [sys.executable, os.environ["CASES"] + "/interrupt.py", "INT", "grep -q a_file_with /proc/$PID/maps"]
begin = time.monotonic()
text = subprocess.run(terminal + ["--interrupt", "4"] + command, stdout=subprocess.PIPE).stdout.decode()
seconds = time.monotonic() - begin
*updates, rest = text.split("\r")[1:-1]
assert 4 <= len(updates) <= 6 * seconds, (seconds, text)
for line in updates:
    assert line.startswith("statistics of a_file_with") and line.endswith("\033[K"), line
    assert "\n" not in line and len(line) <= 59 + len("\033[K"), line
assert rest == "\033[Ktessera tensor: interrupted by a signal", rest
quiet = subprocess.run(terminal + stop + command + ["--quiet"], stdout=subprocess.PIPE).stdout
assert quiet == b"tessera tensor: interrupted by a signal\r\n", quiet
pipe = subprocess.run(stop + command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr
assert pipe == b"tessera tensor: interrupted by a signal\n", pipe
print("erased")
END
