#!/usr/bin/env python3
"""Removes what `meson install` of a build folder installs: uninstall.py BUILD DESTDIR"""
import json
import pathlib
import subprocess
import sys

build, destdir = sys.argv[1:3]
listing = subprocess.run(["meson", "introspect", build, "--installed"], capture_output=True, text=True,
                         check=True)
removed = 0
folders = set()
for path in json.loads(listing.stdout).values():
    target = pathlib.Path(destdir + path)
    # the library's links: libperjoule.so and libperjoule.so.0 beside libperjoule.so.0.1.0
    stem = target.name.split(".so")[0] + ".so"
    links = [p for p in target.parent.glob(stem + "*") if p.is_symlink()] if ".so" in target.name else []
    for each in (target, *links):
        if each.is_symlink() or each.exists():
            each.unlink()
            removed += 1
    folders.add(target.parent)
# folders of our own that are empty now
for folder in sorted(folders, key=lambda p: -len(p.parts)):
    while "perjoule" in folder.parts[-3:] and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
print(f"{removed} files removed" if removed else "nothing of perjoule is installed there")
