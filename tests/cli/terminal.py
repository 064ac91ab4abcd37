#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terminal.py - runs a command on a terminal of 60 columns and prints what it wrote there.

    terminal.py [--columns N] [--stdout | --interrupt LINES] COMMAND...

stderr is the terminal; with --stdout stdout is, too. With --interrupt the command gets SIGINT when it
has rewritten its line so often. Exits with the command's code.
"""
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

arguments = sys.argv[1:]
columns = 60
if arguments[0] == "--columns":
    columns = int(arguments[1])
    arguments = arguments[2:]
both = arguments[0] == "--stdout"
left = int(arguments[1]) if arguments[0] == "--interrupt" else 0
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
child = subprocess.Popen(arguments[2 if left else both:], stdin=subprocess.DEVNULL, stderr=theirs,
                         stdout=theirs if both else subprocess.DEVNULL)
os.close(theirs)
while True:
    try:
        data = os.read(ours, 65536)
    except OSError:  # the other end is closed
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
    if left > 0:
        left -= data.count(b"\r")
        if left <= 0:
            child.send_signal(signal.SIGINT)
sys.exit(child.wait())
