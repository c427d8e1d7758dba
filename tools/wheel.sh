#!/bin/bash
# Makes the Python package: dist/perjoule-VERSION.tar.gz and wheels with libperjoule inside.
#
#   wheel.sh [--here BUILD] [ARCH...]
#
# ARCH is x86_64 or aarch64 (default both): py3-none-manylinux_2_28_ARCH, from the library of `make dist-bin`,
# which needs nothing but glibc 2.28. --here makes one for this machine alone, from the library in BUILD; on
# macOS that is the wheel to publish, where its libraries are linked in.
set -eu
cd "$(dirname "$0")/.."
mkdir -p dist
build() { PERJOULE_WHEEL_LIBRARY=$1 PERJOULE_WHEEL_PLATFORM=$2 python3 python/backend.py wheel dist; }
stripped() { # library, copy: without debugging information, where a tool for it is there
    cp "$1" "$2"
    for tool in llvm-strip llvm-strip-14 strip; do
        if command -v "$tool" >/dev/null && "$tool" -S "$2" 2>/dev/null; then return; fi
    done
}

if [ "${1:-}" = --here ]; then
    case $(uname -s) in
    Darwin) library=$2/libperjoule.0.dylib platform=macosx_11_0_$(uname -m) ;;
    *) library=$2/libperjoule.so.0 platform=linux_$(uname -m) ;;
    esac
    build "$library" "$platform"
    exit
fi
python3 python/backend.py sdist dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for arch in ${*:-x86_64 aarch64}; do
    name=perjoule-$(tools/version.sh)-linux-$arch
    [ -e "dist/$name.tar.gz" ] || tools/dist-bin.sh "$arch"
    tar -C "$work" -xzf "dist/$name.tar.gz" "$name/lib"
    stripped "$(find "$work/$name/lib" -name 'libperjoule.so.0.*' -type f | head -n 1)" "$work/library"
    build "$work/library" "manylinux_2_28_$arch"
done
