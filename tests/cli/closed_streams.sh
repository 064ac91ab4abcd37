# A reader that leaves needs no sentence; a stdout that was never open does.
tessera help --markdown | head -n 1
python3 - <<'END'
import os, subprocess
reader, writer = os.pipe()
os.close(reader)
print("left:", subprocess.run(["tessera", "--version"], stdout=writer).returncode)
END
tessera --version >&-
echo "closed: $?"
tessera --version 2>&- | sed 's/[0-9][0-9.]*$/N/'
