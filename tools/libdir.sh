#!/bin/sh
# Prints the --libdir option for meson, where meson's own guess would be a folder that the loader does
# not search: on Debian and Ubuntu meson asks dpkg-dev, and takes lib64 when that is not installed.
[ -e /etc/debian_version ] || exit 0
for compiler in ${CC:-cc} gcc clang; do
    triplet=$($compiler -print-multiarch 2>/dev/null || true)
    if [ -n "$triplet" ]; then echo "--libdir lib/$triplet"; exit 0; fi
done
