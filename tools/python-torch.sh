#!/bin/bash
# Tests of the Python package with real models of torch and transformers: python-torch.sh BUILD [TEST-FOLDER].
# Uses the python3 that is there when it has both, or the virtual environment ~/.cache/perjoule/torch
# (PERJOULE_TORCH). `make python-test` makes that environment, once (PERJOULE_TORCH_INSTALL=1): it takes several
# gigabytes and minutes, so nothing else does. Otherwise the tests are skipped (exit 77) with that reason.
set -eu
cd "$(dirname "$0")/.."
build=$1
tests=${2:-python/tests}
venv=${PERJOULE_TORCH:-$HOME/.cache/perjoule/torch}
has() { "$1" -c 'import torch, transformers' 2>/dev/null; }
python=python3
if ! has $python; then
    python=$venv/bin/python
    if ! has "$python" && [ "${PERJOULE_TORCH_INSTALL:-}" = 1 ]; then
        echo "installing torch and transformers into $venv"
        rm -rf "$venv"
        mkdir -p "$(dirname "$venv")"
        { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check \
            torch transformers; } >"$venv.log" 2>&1 || { tail -n 3 "$venv.log"; rm -rf "$venv"; }
    fi
    has "$python" || {
        echo "skipped: python3 has no torch and transformers; make python-test installs them into $venv"
        exit 77
    }
fi
PERJOULE_LIBRARY=$(find "$(cd "$build" && pwd)" -maxdepth 1 \( -name 'libperjoule.so.0' -o -name 'libperjoule.0.dylib' \) | head -n 1)
export PERJOULE_LIBRARY PERJOULE_PROGRAM="$build/perjoule" PYTHONPATH=$PWD/python:$PWD/python/tests
exec "$python" -m unittest discover -s "$tests" -p 'test_torch*.py'
