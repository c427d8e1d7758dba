#!/bin/sh
# Checks formatting, runs static analysis and type checkers. Exit code 1 if anything is wrong.
set -u
bad=0
sources=$(git ls-files 'src/*.c' 'src/*.h' 'include/*.h' 'tests/*.c' 'tests/*.h' 'fuzz/*.c' 'examples/*.c' 'bench/*.c')
echo "clang-format"
# shellcheck disable=SC2086
clang-format --dry-run -Werror $sources || bad=1
echo "layers"
python3 tools/check_layers.py || bad=1
echo "shell scripts"
# shellcheck disable=SC2046
shellcheck $(git ls-files '*.sh' .ci/run) || bad=1
echo "cppcheck"
cppcheck --quiet --error-exitcode=1 --enable=warning,performance --inline-suppr \
    --std=c11 -Iinclude -Isrc -I. --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
    -D__linux__ -D_GNU_SOURCE --suppressions-list=tools/cppcheck.txt \
    -j "$(getconf _NPROCESSORS_ONLN)" src bench || bad=1
echo "clang-tidy"
[ -f build-clang/compile_commands.json ] || CC=clang meson setup build-clang -Ddashboard=disabled >/dev/null || bad=1
ninja -C build-clang >build-clang/log 2>&1 || { grep -E "error|warning" -A6 build-clang/log | head -80; bad=1; }
git ls-files "src/*.c" "bench/*.c" | grep -v src/engine/kernels | xargs -n 8 -P "$(getconf _NPROCESSORS_ONLN)" \
    clang-tidy --quiet -p build-clang 2>/dev/null || bad=1
echo "mypy"
if python3 -m mypy --version >/dev/null 2>&1; then
    (cd python && python3 -m mypy --strict --follow-imports=silent --cache-dir ../build-python/mypy perjoule profiling) || bad=1
else
    echo "  skipped: python3 has no mypy"
fi
if [ -d ui ]; then
    echo "page: biome and tsc"
    (cd ui && { [ -x node_modules/.bin/biome ] || npm ci --silent; } && npm run --silent lint && npm run --silent typecheck) || bad=1
fi
if [ $bad = 0 ]; then echo "lint: clean"; else echo "lint: see above" >&2; fi
exit $bad
