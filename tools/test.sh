#!/bin/sh
# All tests, then one closing line: "N passed, N failed, N skipped". Usage: test.sh BUILD, or test.sh BUILD check for
# the fast part: unit tests, command line and the checks of the sources, without those that take long.
# Steps: the suite on the normal build, including the page's checks, without unit tests that do not depend on how they
# are compiled; then all of them, fuzz targets (corpus, then a second of mutations each) and some command line tests
# under the address and undefined sanitizers, beside the first step.
# `make sanitize` adds the thread sanitizer.
# Timeouts exist only to end hanging tests, so they are generous for slow and busy machines.
set -eu
build=$1
part=${2:-all}
processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# More jobs than processors: tests spend half of their time waiting.
jobs=$((processors + 2))

# Files that the tests under sanitizers run, which are a fifth less than all; and in the normal build all but the unit
# tests that run under sanitizers only (suite "alike": however they are compiled, they find the same).
targets_of() { # folder
    meson introspect "$1" --tests --targets | python3 -c 'import json, os, sys
folder, all = sys.argv[1], json.load(sys.stdin)
def needed(is_run):
    return {d for t in all["tests"] if is_run({s.split(":")[-1] for s in t["suite"]}) for d in t["depends"]}
runs = needed(lambda suites: "sanitized" in suites) if folder == "build-asan" else needed(lambda suites: "alike" not in suites)
left_out = needed(lambda suites: "alike" in suites) - runs
for target in all["targets"]:
    if target["id"] in runs or folder != "build-asan" and target["build_by_default"] and target["id"] not in left_out:
        print(*(os.path.relpath(f, folder) for f in target["filename"]))' "$1"
}

setup() { # folder, options...
    folder=$1; shift
    # a build folder configured before cmocka was installed has no unit tests
    if [ -f "$folder/build.ninja" ] && [ ! -d "$folder/tests/unit" ]; then
        meson configure --clearcache "$folder" >/dev/null
        meson setup --reconfigure "$folder" >/dev/null
    fi
    if [ ! -f "$folder/build.ninja" ] && ! meson setup "$folder" "$@" >"$folder.log" 2>&1; then
        cat "$folder.log"; exit 1
    fi
    wanted=
    if [ "$part" = all ]; then
        ninja -C "$folder" build.ninja >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
        wanted=$(targets_of "$folder")
    fi
    # shellcheck disable=SC2086  # a list of files
    if ! ninja -C "$folder" $wanted >"$folder.log" 2>&1; then
        grep -E "error|warning|FAILED" -A8 "$folder.log"; exit 1
    fi
    rm -f "$folder.log"
}
suite() { # name, folder, number of jobs, meson test options...
    name=$1 folder=$2 at_once=$3; shift 3
    echo "== $name"
    rm -f "$folder/meson-logs/testlog.json"
    meson test -C "$folder" --no-rebuild --num-processes "$at_once" --print-errorlogs "$@" || true
}

install_page_tools() {
    # The build installs only the page's build dependencies; its tests need the development tools too.
    if command -v npm >/dev/null; then
        python3 tools/embed.py --ui ui --tools || echo "the page's test tools could not be installed"
    fi
}
test_sanitized() {
    # -O1 with line tables compiles twice as fast as -O2 -g and runs a tenth slower; reports need no more. A pointer that
    # overflows, leaves its object or is null is found where it is used, by the address sanitizer. GCC
    # leaves casts of values that do not fit out of "undefined".
    setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized \
        -Doptimization=1 -Dc_args="-g1 -fsanitize=float-cast-overflow -fno-sanitize=pointer-overflow,object-size,null" -Ddashboard=disabled
    [ -e "$sanitized_output" ] || exit 1 # the normal build has failed
    # AddressSanitizer's quarantine holds 16 MiB, not 256: fresh pages for it took a fifth of the system's time. What is
    # allocated is filled for 256 bytes, not 4,096, most of which arenas and buffers would never touch.
    ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=16:max_malloc_fill_size=256 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        suite "under the address and undefined sanitizers" build-asan "$processors" --suite sanitized --timeout-multiplier 8
}

if [ "$part" = check ]; then
    setup "$build"
    suite "unit tests, command line, sources" "$build" "$jobs" --suite unit --suite cli --suite lint --no-suite long --timeout-multiplier 4
    python3 tools/count_tests.py "$build/meson-logs/testlog.json"
    exit
fi
install_page_tools
# where CI=true, the environment of the Python tests is created while everything is built
tools/python-torch.sh --install &
# Built and run beside the first step, which waits as much as it computes; its output follows.
sanitized_output=$(mktemp)
trap 'rm -f "$sanitized_output"; wait' EXIT # nothing goes on building when this has ended
test_sanitized >"$sanitized_output" 2>&1 &
sanitized=$!
setup "$build"
suite "all tests" "$build" "$jobs" --no-suite conformance --no-suite alike --timeout-multiplier 4
wait "$sanitized" || { cat "$sanitized_output"; exit 1; }
cat "$sanitized_output"
python3 tools/count_tests.py "$build/meson-logs/testlog.json" build-asan/meson-logs/testlog.json
