#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel.py - what a wheel holds: one copy of each library, no symbolic links, no OpenMP runtime, for every Python 3.

    wheel.py PLAIN.whl REPAIRED.whl

PLAIN is what pip builds, REPAIRED what auditwheel makes of it, for manylinux_2_34.
"""
import os
import re
import stat
import subprocess
import sys
import tempfile
import zipfile


def check(condition, sentence):
    if not condition:
        sys.exit(f"wheel: {sentence}")


def check_wheel(path, platform):
    name = os.path.basename(path)
    check(re.fullmatch(rf"tessera_dit-[0-9.]+-py3-none-{platform}\.whl", name), f"{name} is no py3-none wheel of {platform}")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        links = [i.filename for i in wheel.infolist() if stat.S_ISLNK(i.external_attr >> 16)]
    check(not links, f"{name} has symbolic links: {links}")
    libraries = [n for n in names if ".so" in os.path.basename(n)]
    ours = sorted(n for n in libraries if "libtessera" in n)
    check(ours == ["tessera/libtessera.so", "tessera/libtessera_gpu.so"], f"{name} has {ours}, must have libtessera.so and libtessera_gpu.so")
    check(not any("gomp" in n or "hwloc" in n or "isal" in n for n in libraries), f"{name} has {libraries}")
    missing = {f"tessera/{n}" for n in ("__init__.py", "_decl.py", "py.typed", "torch/__init__.py", "torch/_triton_kernels.py",
                                          "integrations/diffusers.py")} - set(names)
    check(not missing, f"{name} lacks {sorted(missing)}")
    others = [n for n in names if not n.startswith(("tessera/", "tessera_dit")) or "__pycache__" in n]
    check(not others, f"{name} has {others}")
    print(f"{name}: {len(names)} files, {os.path.getsize(path) / 1e3:.0f} kB, libraries {', '.join(libraries)}")


def check_needed(path):
    """The library of the repaired wheel asks for libgomp under the name that PyTorch's wheel has too; that of GPUs asks for this
    library by its soname, and for nothing of CUDA."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as wheel:
        said = {}
        for name in ("libtessera.so", "libtessera_gpu.so"):
            library = wheel.extract("tessera/" + name, folder)
            said[name] = subprocess.run(["readelf", "-d", library], check=True, text=True, stdout=subprocess.PIPE).stdout
    needed, gpu = (re.findall(r"NEEDED.*\[(.*)\]", text) for text in said.values())
    check("libgomp.so.1" in needed, f"the library needs {needed}, must need libgomp.so.1")
    check(not any("hwloc" in n or "isal" in n for n in needed), f"the library needs {needed}")
    soname = re.findall(r"SONAME.*\[(.*)\]", said["libtessera.so"])
    check(soname[0] in gpu and not any("cuda" in n for n in gpu), f"libtessera_gpu.so needs {gpu}, must need {soname[0]} and nothing of CUDA")


def main():
    plain, repaired = sys.argv[1:]
    machine = os.uname().machine
    check_wheel(plain, f"linux_{machine}")
    check_wheel(repaired, rf"(manylinux_[0-9_]+_{machine}\.)*manylinux_2_34_{machine}(\.manylinux_[0-9_]+_{machine})*")
    check_needed(repaired)


main()
