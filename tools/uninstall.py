#!/usr/bin/env python3
"""Removes what `meson install` of a build folder installs: uninstall.py BUILD DESTDIR"""
import json
import pathlib
import subprocess
import sys

build, destdir = sys.argv[1:3]
listing = subprocess.run(["meson", "introspect", build, "--installed"], capture_output=True, text=True,
                         check=True)


def installed(built, target):
    """The files of one entry of meson's list."""
    if target.is_dir() and not target.is_symlink():  # generated folders: the manual pages
        return [target / p.name for p in pathlib.Path(built).iterdir()] if pathlib.Path(built).is_dir() else []
    if ".so" not in target.name:
        return [target]
    # symbolic links of the library: libperjoule.so and libperjoule.so.0 to libperjoule.so.0.1.0
    stem = target.name.split(".so")[0] + ".so"
    return [target] + [p for p in target.parent.glob(stem + "*") if p.is_symlink()]


removed = 0
folders = set()
for built, path in json.loads(listing.stdout).items():
    for each in installed(built, pathlib.Path(destdir + path)):
        if each.is_symlink() or each.is_file():
            each.unlink()
            removed += 1
        folders.add(each.parent)
# remove our folders that are now empty
for folder in sorted(folders, key=lambda p: -len(p.parts)):
    while "perjoule" in folder.parts[-3:] and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
print(f"{removed} files removed" if removed else "nothing of perjoule is installed there")
