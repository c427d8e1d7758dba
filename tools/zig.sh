#!/bin/sh
# Prints the folder of the Zig toolchain, which compiles C for other systems and for older C libraries;
# installs it from the Python package ziglang on first use, into build-zig/.
set -eu
cd "$(dirname "$0")/.."
venv=$PWD/build-zig/venv
find_zig() { find "$venv"/lib/python3*/site-packages/ziglang -maxdepth 1 -name zig 2>/dev/null; }
if [ -z "$(find_zig)" ]; then
    mkdir -p build-zig
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check ziglang; } >build-zig/log 2>&1; then
        echo "the Python package ziglang can't be installed:" >&2
        tail -n 5 build-zig/log >&2
        exit 3
    fi
fi
dirname "$(find_zig)"
