#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hardening.py - what the ELF headers of libraries and programs must say.

    hardening.py --command bin/tessera [--fortify OFF] FOLDER...

Each file: full RELRO with all symbols bound at the start, no executable stack, a search path without empty or
relative elements, the stack protector; a program at random addresses. Of libraries and the command also checked library calls. The
command is also run where a file with the name of one of its libraries lies, which must not be loaded.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], check=True, text=True, stdout=subprocess.PIPE).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def faults_of(path, checked):
    """What is wrong with a file, as phrases. checked: it must have calls that only code of ours makes."""
    head, segments, dynamic = readelf("-h", path), readelf("-l", path), readelf("-d", path)
    symbols = readelf("--dyn-syms", path)
    if not re.search(r"Type:\s+DYN", head):
        yield "is no position-independent file"
    if "INTERP" in segments and not re.search(r"FLAGS_1.*\bPIE\b", dynamic):
        yield "is no position-independent program"
    if "GNU_RELRO" not in segments:
        yield "has no RELRO"
    if not re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "binds symbols lazily: RELRO is partial"
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+(\w+)", segments)
    if not stack or "E" in stack.group(1):
        yield "has an executable stack"
    for paths in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
        for folder in paths.split(":"):
            if not re.match(r"/|\$ORIGIN(/|$)", folder):
                yield f'searches for libraries in "{folder}" of the current folder'
    if checked and "__stack_chk_fail" not in symbols:
        yield "has no stack protector"
    if checked == "fortify" and not re.search(r"__(memcpy|snprintf|vsnprintf)_chk", symbols):
        yield "has no checked library calls"


def check_current_folder(command):
    """A file in the current folder with the name of a needed library is not loaded."""
    needed = re.findall(r"NEEDED.*\[(libjansson[^\]]*)\]", readelf("-d", command))
    if not needed:
        sys.exit(f"{command} does not need jansson")
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, needed[0]), "w").close()
        result = subprocess.run([os.path.abspath(command), "--version"], cwd=folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        sys.exit(f"{command} loads libraries from the current folder: {result.stdout}")


def check(command, folders, fortify):
    """Exits with the faults of the files in folders."""
    faults = []
    paths = [os.path.join(folder, name) for folder in folders for name in sorted(os.listdir(folder))]
    files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path) and is_elf(path)]
    for path in files:
        # Of programs of tests some have no array and no call that could be checked.
        own = os.path.basename(path).startswith(("tessera", "libtessera"))
        checked = own and ("fortify" if fortify else "protect")
        faults += [f"{path} {fault}" for fault in faults_of(path, checked)]
    if faults:
        sys.exit("\n".join(faults))
    check_current_folder(command)
    print(f"hardening: {len(files)} files, all well")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--command", required=True)
    parser.add_argument("--fortify", choices=("ON", "OFF"), default="ON")
    parser.add_argument("folders", nargs="+")
    options = parser.parse_args()
    check(options.command, options.folders, options.fortify == "ON")


if __name__ == "__main__":
    main()
