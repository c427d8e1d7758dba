#!/bin/bash
# Tests the Python package as users install it: python-test.sh BUILD. Installs a wheel with this build's library into
# a fresh virtual environment and runs the tests against it there; builds a wheel from the source archive; then
# the tests with real models, in an environment of their own (python-torch.sh).
set -eu
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
work=$PWD/build-python
rm -rf "$work/fresh" "$work/sdist"
mkdir -p "$work" dist
wheel=$(tools/wheel.sh --here "$build")
python3 -m venv "$work/fresh"
"$work/fresh/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
unset PERJOULE_LIBRARY PYTHONPATH
cd "$work"
fresh/bin/python -c 'import perjoule, perjoule._native as n; print("perjoule", perjoule.__version__, "with", n.find_library())'
# the wheel brings the program, and Python finds it where the environment is not on the PATH
fresh/bin/perjoule run --power none --db "$work/fresh/runs.db" -n 2 Once >/dev/null
fresh/bin/python -c '
import perjoule
run = perjoule.open("fresh/runs.db").run("last")
print("the program that came with it wrote", run.report("fresh/run.md"))'
PERJOULE_PROGRAM=$build/perjoule fresh/bin/python -m unittest discover -s ../python/tests
python3 ../python/backend.py sdist "$work" >/dev/null
mkdir sdist
tar -C sdist --strip-components=1 -xzf perjoule-*.tar.gz
(cd sdist && python3 backend.py wheel .. >/dev/null)
PERJOULE_LIBRARY=$(find "$build" -maxdepth 1 -name 'libperjoule.*.0' -o -maxdepth 1 -name 'libperjoule.0.dylib' | head -n 1) \
    PYTHONPATH=$(find "$work" -maxdepth 1 -name 'perjoule-*-py3-none-any.whl') \
    python3 -c 'import perjoule; perjoule.Session(power="none", database="none").close(); print("the source archive builds")'
cd ..
status=0
PERJOULE_TORCH_INSTALL=1 tools/python-torch.sh "$build" || status=$?
[ $status = 77 ] || exit $status
