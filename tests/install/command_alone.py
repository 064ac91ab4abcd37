#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_alone.py - builds the command alone, as README.md and scripts/demo do, installs it, and removes it again.

The build is configured anew and takes the objects of the build that is tested (reuse_object), so that it links what the
target tessera_cli needs and nothing else. Uninstalling removes the files that were installed and Tessera's own folders,
and leaves what others put beside them.
"""
import argparse
import os
import subprocess
import sys
import tempfile


def run(*command, **environment):
    print("+", " ".join(command), flush=True)
    result = subprocess.run(command, env={**os.environ, **environment}, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        sys.exit(f"{result.stdout}\nfailed with {result.returncode}: {' '.join(command)}")
    return result.stdout


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(here, name), folder) for here, _, names in os.walk(folder)
                  for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in "source cmake cc built".split():
        parser.add_argument("--" + name, required=True)
    parser.add_argument("settings", nargs="*", help="NAME=VALUE of the build that is tested")
    options = parser.parse_args()
    launcher = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reuse_object")
    with tempfile.TemporaryDirectory() as work:
        build, prefix, other = (os.path.join(work, name) for name in ("build", "prefix", "other"))
        run(options.cmake, "-S", options.source, "-B", build, "-G", "Ninja", f"-DCMAKE_C_COMPILER={options.cc}",
            "-DTESS_TESTS=OFF", f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_INSTALL_PREFIX={prefix}",
            *(f"-D{setting}" for setting in options.settings))
        run(options.cmake, "--build", build, "--target", "tessera_cli", TESS_BUILT=options.built)
        run(options.cmake, "--install", build)
        installed = files_of(prefix)
        if not {"bin/tessera", "share/man/man1/tessera.1", "include/tessera/base.h"} <= set(installed):
            sys.exit(f"missing among the installed files: {installed}")
        version = run(os.path.join(prefix, "bin", "tessera"), "--version")
        beside = [os.path.join(prefix, "bin", "other"), os.path.join(prefix, "include", "tessera", "mine.h")]
        for path in beside:
            open(path, "w").close()
        run(options.cmake, "--build", build, "--target", "uninstall")
        if files_of(prefix) != sorted(os.path.relpath(path, prefix) for path in beside):
            sys.exit(f"after uninstalling there are {files_of(prefix)}")
        for folder in ("include/tessera/advanced", "share/tessera"):
            if os.path.exists(os.path.join(prefix, folder)):
                sys.exit(f"after uninstalling the folder {folder} is left")
        run(options.cmake, "--install", build, DESTDIR=other)
        if [path for path in files_of(other) if path.endswith("bin/tessera")] != [f"{prefix[1:]}/bin/tessera"]:
            sys.exit(f"with DESTDIR the installed files are {files_of(other)}")
        run(options.cmake, "--build", build, "--target", "uninstall", DESTDIR=other)
        if files_of(other):
            sys.exit(f"after uninstalling with DESTDIR there are {files_of(other)}")
    print(f"install_command_alone: {version.strip()}, {len(installed)} files, all well")


main()
