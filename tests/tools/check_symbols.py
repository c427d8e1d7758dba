#!/usr/bin/env python3
"""Fails when the shared library exports a symbol that does not begin with pj_."""
import subprocess
import sys

listing = subprocess.run(["nm", "-D", "--defined-only", sys.argv[1]], capture_output=True,
                         text=True, check=True).stdout
names = [line.split()[-1].split("@")[0] for line in listing.splitlines()]
bad = [n for n in names if not n.startswith("pj_") and not n.startswith("__")]
print(f"{len(names)} symbols exported", *bad, sep="\n  not ours: ")
sys.exit(1 if bad or not names else 0)
