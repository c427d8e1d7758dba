#!/usr/bin/env python3
"""Every C file is formatted as clang-format does it: check_format.py SOURCE_ROOT. Skipped (exit 77) without
clang-format or git."""
import pathlib
import shutil
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
if not shutil.which("clang-format") or not (root / ".git").exists():
    print("skipped: there is no clang-format, or this is no checkout")
    sys.exit(77)
listed = subprocess.run(["git", "ls-files", "*.c", "*.h"], cwd=root, capture_output=True, text=True, check=True).stdout
done = subprocess.run(["clang-format", "--dry-run", "-Werror", *listed.split()], cwd=root)
sys.exit(done.returncode)
