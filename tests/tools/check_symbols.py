#!/usr/bin/env python3
"""Fails unless the shared library exports exactly the functions that the public headers declare.

Usage: check_symbols.py LIBRARY ROOT
"""
import pathlib
import re
import subprocess
import sys

library, root = sys.argv[1], pathlib.Path(sys.argv[2])
listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                         check=True).stdout
exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()
            if line.split()[-2] != "A"}  # names of ABI versions
exported = {name for name in exported if not name.startswith("_")}
headers = "".join(path.read_text() for path in (root / "include").rglob("*.h"))
declared = set(re.findall(r"^PJ_API [^;]*?\b(pj_\w+)\(", headers, re.M))
print(f"{len(exported)} symbols exported, {len(declared)} declared",
      *(f"not declared: {name}" for name in sorted(exported - declared)),
      *(f"not exported: {name}" for name in sorted(declared - exported)), sep="\n  ")
sys.exit(exported != declared or not declared)
