# SPDX-License-Identifier: Apache-2.0
"""environment.py - the virtual environment that the peers live in."""
import os
import subprocess
import sys
import venv


def environment(folder, packages):
    """The interpreter of the virtual environment, with the packages in it."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        print(f"making the environment {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True)
    imports = "import " + ", ".join(packages)
    if subprocess.run([python, "-c", imports], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("installing", " ".join(packages), file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, stdout=sys.stderr)
    return python
