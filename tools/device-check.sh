#!/bin/sh
# Proves or refutes on a machine with a card what perjoule says of it: what the device computes against the CPU, speeds, what recording
# costs, coverage, interruption, sensors under a known load, and the Python package with CUDA:
#     tools/device-check.sh [--build FOLDER] [--device NAME] [--out FOLDER] [--golden FOLDER] [--seconds N] [--load COMMAND] [--small]
# Needs a build folder, python3 and the driver, no network. The sensors need a load: PyTorch makes it, or --load names a program that is
# busy while it runs (it is started and stopped in turn). Writes device-check.md and device-check.json into --out after every check and
# takes nine minutes at most; see tools/device/run.py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "device-check: python3 is needed" >&2; exit 2; }
exec timeout 540 python3 "$here/device/run.py" "$@"
