#!/bin/sh
# Measures how the sensors of the first NVIDIA card here behave under a known load, and what perjoule makes of them:
#     tools/device-check.sh [--build FOLDER] [--seconds N] [--load COMMAND]
# Needs a build folder, python3 and the driver, no network. PyTorch makes the load; without it --load names a program that is
# busy while it runs (it is started and stopped in turn). Takes two minutes (nine at most); see tools/device/check.py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "device-check: python3 is needed" >&2; exit 2; }
exec timeout 540 python3 "$here/device/check.py" "$@"
