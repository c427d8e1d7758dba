#!/usr/bin/env python3
"""Removes what `meson install` of a build folder installs, from a prefix that may be another than the build's:
uninstall.py BUILD PREFIX DESTDIR"""
import json
import pathlib
import subprocess
import sys

build, prefix, destdir = sys.argv[1:4]
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


listed = {built: pathlib.Path(path) for built, path in json.loads(listing.stdout).items()}
# meson lists the prefix of its last run, which is the program's folder's folder
own = next(path for path in listed.values() if path.name == "perjoule" and path.parent.name == "bin").parent.parent
removed = 0
folders = set()
for built, path in listed.items():
    if not path.is_relative_to(own):
        continue
    for each in installed(built, pathlib.Path(f"{destdir}{prefix}") / path.relative_to(own)):
        if each.is_symlink() or each.is_file():
            each.unlink()
            removed += 1
        folders.add(each.parent)
# remove our folders that are now empty
for folder in sorted(folders, key=lambda p: -len(p.parts)):
    while "perjoule" in folder.parts[-3:] and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
where = destdir + prefix
print(f"{removed} files removed from {where}" if removed else f"nothing of perjoule is in {where}")
