#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""interrupt.py - runs a command, and sends it a signal as soon as a condition holds.

    interrupt.py [--cpu SECONDS] SIGNAL CONDITION COMMAND...

CONDITION is a line for the shell, with the command's process number in $PID. The command must end
within 10 seconds of the signal; with --cpu also within so many seconds of CPU time, which other load
of the machine does not change. Exits as a shell does: with the command's code, or 128 and the signal
that ended it.
"""
import os
import signal
import subprocess
import sys
import time

arguments = sys.argv[1:]
cpu_most = None
if arguments[0] == "--cpu":
    cpu_most = float(arguments[1])
    arguments = arguments[2:]
name, condition, *command = arguments


def cpu_of(pid):
    """User and system time of a process, in seconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


child = subprocess.Popen(command)
environment = {**os.environ, "PID": str(child.pid)}
while subprocess.run(["sh", "-c", condition], env=environment, stderr=subprocess.DEVNULL).returncode != 0:
    if child.poll() is not None:
        sys.exit(f"ended with {child.returncode} before: {condition}")
    time.sleep(0.02)
before = cpu_of(child.pid)
child.send_signal(signal.Signals["SIG" + name])
begin = time.monotonic()
_, code, usage = os.wait4(child.pid, 0)
code = os.waitstatus_to_exitcode(code)
child.returncode = code
if time.monotonic() - begin > 10:
    sys.exit(f"took {time.monotonic() - begin:.0f} s to end")
cpu = usage.ru_utime + usage.ru_stime - before
if cpu_most is not None and cpu > cpu_most:
    sys.exit(f"took {cpu:.1f} s of CPU time to end")
sys.exit(code if code >= 0 else 128 - code)
