#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""interrupt.py - runs a command, and sends it a signal as soon as a condition holds.

    interrupt.py SIGNAL CONDITION COMMAND...

CONDITION is a line for the shell, with the command's process number in $PID. The command must end
within 10 seconds of the signal. Exits as a shell does: with the command's code, or 128 and the signal
that ended it.
"""
import os
import signal
import subprocess
import sys
import time

name, condition, *command = sys.argv[1:]
child = subprocess.Popen(command)
environment = {**os.environ, "PID": str(child.pid)}
while subprocess.run(["sh", "-c", condition], env=environment, stderr=subprocess.DEVNULL).returncode != 0:
    if child.poll() is not None:
        sys.exit(f"ended with {child.returncode} before: {condition}")
    time.sleep(0.02)
child.send_signal(signal.Signals["SIG" + name])
begin = time.monotonic()
code = child.wait()
if time.monotonic() - begin > 10:
    sys.exit(f"took {time.monotonic() - begin:.0f} s to end")
sys.exit(code if code >= 0 else 128 - code)
