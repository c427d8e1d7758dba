#!/bin/sh
# Prints the --libdir option for meson where its default would be wrong: on Debian and Ubuntu without dpkg-dev meson
# falls back to lib64, which the loader does not search.
[ -e /etc/debian_version ] || exit 0
for compiler in ${CC:-cc} gcc clang; do
    triplet=$($compiler -print-multiarch 2>/dev/null || true)
    if [ -n "$triplet" ]; then echo "--libdir lib/$triplet"; exit 0; fi
done
