#!/bin/bash
# Tests of the Python package with real models of torch and transformers: python-torch.sh BUILD [TEST-FOLDER [FILES]].
# Uses python3 if it has both, otherwise the virtual environment ~/.cache/perjoule/torch (PERJOULE_TORCH). That
# environment takes several gigabytes and minutes, so it is created only by `make python-test`
# (PERJOULE_TORCH_INSTALL=1) or where CI=true. Without it, or if the download takes too long, the tests are skipped
# (exit 77) with the reason. Several of these scripts may run at a time: one of them creates the environment, the
# others wait for it. `python-torch.sh --install` only creates it.
set -eu
cd "$(dirname "$0")/.."
build=$1
tests=${2:-python/tests}
files=${3:-test_[rtv]*.py} # models, and what reads with pandas and polars
venv=${PERJOULE_TORCH:-$HOME/.cache/perjoule/torch}
packages="torch transformers accelerate lightning pandas polars mypy nvtx"
# Half of the time of an import is its compilation to bytecode, which is kept whatever the caller's settings.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$venv.bytecode"
has() { # without importing them, which takes seconds
    "$1" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("transformers")))' \
        2>/dev/null
}
limited() { if command -v timeout >/dev/null; then timeout "${PERJOULE_TORCH_SECONDS:-700}" "$@"; else "$@"; fi; }
alone() { # holds a lock while the command runs
    mkdir -p "$(dirname "$venv")"
    python3 -c 'import fcntl, subprocess, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
sys.exit(subprocess.call(sys.argv[2:]))' "$venv.lock" "$@"
}
install() {
    if has "$venv/bin/python"; then return; fi
    # a failure is not repeated by those that waited for it
    if [ "${PERJOULE_TORCH_INSTALL:-}" != 1 ] && [ -n "$(find "$venv.failed" -mmin -20 2>/dev/null)" ]; then return; fi
    echo "installing $packages into $venv"
    rm -rf "$venv" "$PYTHONPYCACHEPREFIX"
    # shellcheck disable=SC2086  # the list is words on purpose
    { python3 -m venv "$venv" && limited "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check \
        --retries 2 $packages; } >"$venv.log" 2>&1 || {
        tail -n 3 "$venv.log"
        rm -rf "$venv"
        touch "$venv.failed"
        return
    }
    # what the tests import is compiled here, once, and not by each of those that begin at the same time
    "$venv/bin/python" -c 'import torch._dynamo, transformers; transformers.LlamaForCausalLM' >>"$venv.log" 2>&1 || true
}
if [ "$build" = --install-alone ]; then install; exit; fi
wanted() { [ "${PERJOULE_TORCH_INSTALL:-}" = 1 ] || { [ "${CI:-}" = true ] && [ $# -ne 2 ]; }; }

python=python3
if ! has $python; then
    python=$venv/bin/python
    if ! has "$python" && wanted "$@"; then alone tools/python-torch.sh --install-alone; fi
    [ "$build" = --install ] || has "$python" || {
        echo "skipped: python3 has no torch and transformers; make python-test installs them into $venv"
        exit 77
    }
fi
if [ "$build" = --install ]; then exit; fi
PERJOULE_LIBRARY=$(find "$(cd "$build" && pwd)" -maxdepth 1 \( -name 'libperjoule.so.0' -o -name 'libperjoule.0.dylib' \) | head -n 1)
export PERJOULE_LIBRARY PERJOULE_PROGRAM="$build/perjoule" PYTHONPATH=$PWD/python:$PWD/python/tests
exec "$python" -m unittest discover -s "$tests" -p "$files"
