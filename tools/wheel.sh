#!/bin/bash
# Makes the Python package: dist/perjoule-VERSION.tar.gz, perjoule_vllm-VERSION (the entry points by which vLLM finds
# the package) and wheels with libperjoule inside, on Linux with the program too.
#
#   wheel.sh BUILD [ARCH...]    wheels for other machines, from the sources and flags of a configured build
#   wheel.sh --here BUILD       one for this machine, from BUILD
#
# ARCH is x86_64, aarch64 (py3-none-manylinux_2_28_ARCH) or macos-arm64 (py3-none-macosx_11_0_arm64), default all:
# they need only the system's C library. Each wheel is checked (check_wheel.py).
set -eu
cd "$(dirname "$0")/.."
mkdir -p dist
build() { # library, platform, folder of an installation or "", its notices, its bill of materials
    PERJOULE_WHEEL_LIBRARY=$1 PERJOULE_WHEEL_PLATFORM=$2 PERJOULE_WHEEL_PROGRAM=$3 \
        PERJOULE_WHEEL_NOTICES=${4:-} PERJOULE_WHEEL_BILL=${5:-} python3 python/backend.py wheel dist
}

if [ "${1:-}" = --here ]; then
    case $(uname -s) in
    Darwin) library=$2/libperjoule.0.dylib platform=macosx_11_0_$(uname -m) ;;
    *) library=$2/libperjoule.so.0 platform=linux_$(uname -m) ;;
    esac
    # an installation is found relative to its program, whatever its prefix
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    DESTDIR=$tree meson install -C "$2" --no-rebuild --quiet >/dev/null
    program=$(find "$tree" -path '*/bin/perjoule' -type f)
    # the program contains the page; the libraries are this machine's
    python3 tools/notices.py --ui ui --sbom "$tree/cdx.json" >"$tree/THIRD-PARTY-NOTICES"
    build "$library" "$platform" "${program%/bin/perjoule}" "$tree/THIRD-PARTY-NOTICES" "$tree/cdx.json"
    exit
fi
configured=$1
shift
python3 python/backend.py sdist dist
python3 python/backend.py vllm dist
[ $# -gt 0 ] || set -- x86_64 aarch64 macos-arm64
for arch; do
    case $arch in macos-*) platform=macosx_11_0_${arch#macos-} ;; *) platform=manylinux_2_28_$arch ;; esac
    program='' notices='' bill=''
    case $arch in macos-*) ;; *)
        tools/dist-bin.sh "$arch" >&2
        name=perjoule-$(tools/version.sh)-linux-$arch
        program=build-dist-bin/$name notices=build-dist-bin/$name/THIRD-PARTY-NOTICES bill=dist/$name.cdx.json
        ;;
    esac
    library=$(tools/dist-bin.sh --library "$configured" "$arch" | tail -n 1)
    wheel=$(build "$library" "$platform" "$program" "$notices" "$bill")
    python3 tools/check_wheel.py "$wheel"
    echo "$wheel"
done
