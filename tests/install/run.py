#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - installs the build, moves the tree, and builds and runs consumers of it in both ways.

The tree is moved between installation and use, so that nothing may point to where it was made. The
consumers use find_package and pkg-config, in C and in C++, and each library that was built. The installed
files are hardened as those of the build are (hardening.py). The core library must need neither MPI nor oneDNN, so that the planner can be embedded without them.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import hardening

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMER = os.path.join(HERE, "consumer")
EXAMPLES = os.path.join(HERE, "..", "..", "examples")
# As in tests/mpi: Open MPI would refuse to run as root and without ssh.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": "",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def run(*command, cwd=None, **environment):
    print("+", " ".join(command), flush=True)
    result = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        print(result.stdout)
        sys.exit(f"failed with {result.returncode}: {' '.join(command)}")
    return result.stdout


def expect(text, words):
    if words not in text:
        sys.exit(f'expected "{words}" in:\n{text}')


def run_consumers(options, folder, **environment):
    """Runs the programs that were built in folder; each prints the version of the library."""
    for program in sorted(os.listdir(folder)):
        path = os.path.join(folder, program)
        launcher = [options.mpiexec, "-n", "1"] if program == "use_mpi" else []
        expect(run(*launcher, path, **MPI_ENVIRONMENT, **environment), f"{program}: tessera {options.version}")


def by_cmake(options, prefix, work):
    build = os.path.join(work, "cmake")
    run(options.cmake, "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={options.cc}", f"-DCMAKE_CXX_COMPILER={options.cxx}", "-DCMAKE_BUILD_TYPE=Debug",
        f"-DMPI_C_COMPILER={options.mpicc}", f"-DCOMPONENTS={options.components.replace(',', ';')}",
        f"-DCONSUMER_CXX={'ON' if options.cxx else 'OFF'}", f"-DVERSION={options.version}")
    run(options.cmake, "--build", build)
    run_consumers(options, os.path.join(build, "bin"))


def by_pkg_config(options, prefix, work):
    folder = os.path.join(work, "pkg-config")
    os.mkdir(folder)
    libraries = os.path.join(prefix, options.libdir)
    path = {"PKG_CONFIG_PATH": os.path.join(libraries, "pkgconfig")}
    expect(run("pkg-config", "--modversion", "tessera", **path), options.version)
    consumers = [("use_core", "core.c", options.cc, "tessera")]
    if options.cxx:
        consumers.append(("use_core_cxx", "core.cpp", options.cxx, "tessera"))
    if "train" in options.components.split(","):
        consumers.append(("use_train", "train.c", options.cc, "tessera-train"))
    if "mpi" in options.components.split(","):
        consumers.append(("use_mpi", "mpi.c", options.mpicc, "tessera-mpi"))
    for program, source, compiler, package in consumers:
        flags = run("pkg-config", "--cflags", "--libs", package, **path).split()
        run(compiler, "-o", os.path.join(folder, program), os.path.join(CONSUMER, source), *flags,
            *([f"-Wl,-rpath-link,{libraries}"] if options.shared == "ON" else []))
    run_consumers(options, folder, LD_LIBRARY_PATH=libraries)


def examples(options, prefix, work):
    """The examples, compiled by the line that stands in their heads."""
    libraries = os.path.join(prefix, options.libdir)
    for source in sorted(name for name in os.listdir(EXAMPLES) if name.endswith(".c")):
        program = os.path.join(work, source[:-2])
        with open(os.path.join(EXAMPLES, source), encoding="utf-8") as file:
            shared, libs, package, maths = re.search(
                r"cc (-shared -fPIC )?.*--cflags (--libs )?([\w-]+)\)( -lm)?", file.read()).groups()
        if package == "tessera-train" and "train" not in options.components.split(","):
            continue
        flags = run("pkg-config", "--cflags", *(["--libs"] if libs else []), package,
                    PKG_CONFIG_PATH=os.path.join(libraries, "pkgconfig")).split()
        if shared:  # a selector, which the command loads: tests/cli/selector.sh runs it
            run(options.cc, *shared.split(), "-o", program + ".so", os.path.join(EXAMPLES, source), *flags)
            continue
        run(options.cc, "-o", program, os.path.join(EXAMPLES, source), *flags, *(["-lm"] if maths else []),
            *([f"-Wl,-rpath-link,{libraries}"] if options.shared == "ON" else []))
        run(program, cwd=work, LD_LIBRARY_PATH=libraries)


def check_moved(prefix, old):
    """No text file of the tree names the place it was installed to."""
    for here, _, names in os.walk(prefix):
        for name in names:
            if name.endswith((".pc", ".cmake", ".h")):
                with open(os.path.join(here, name), encoding="utf-8") as file:
                    if old in file.read():
                        sys.exit(f"{name} names {old}")


def check_needs(prefix, libdir):
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", os.path.join(prefix, libdir, "libtessera.so")))
    print("libtessera.so needs", " ".join(needed))
    for library in needed:
        if re.match(r"lib(mpi|mpich|dnnl|open-|png|av)", library):
            sys.exit(f"libtessera.so needs {library}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in "build cmake libdir version components shared fortify cc cxx mpicc mpiexec".split():
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        made, prefix = os.path.join(work, "made"), os.path.join(work, "moved")
        run(options.cmake, "--install", options.build, "--prefix", made)
        os.rename(made, prefix)
        check_moved(prefix, made)
        if options.shared == "ON":
            check_needs(prefix, options.libdir)
        expect(run(os.path.join(prefix, "bin", "tessera"), "--version"), f"tessera {options.version}")
        if options.shared == "ON":
            hardening.check(os.path.join(prefix, "bin", "tessera"),
                            [os.path.join(prefix, "bin"), os.path.join(prefix, options.libdir)],
                            options.fortify == "ON")
        by_cmake(options, prefix, work)
        by_pkg_config(options, prefix, work)
        examples(options, prefix, work)
    print("install_consumer: all well")


main()
