#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (60) with clang's libFuzzer, address and undefined
# sanitizers. New inputs go to build-fuzz/corpus; a finding stops the script and names its file.
set -eu
seconds=${FUZZ_SECONDS:-60}
# Undefined behaviour is fatal, like any other finding. The quarantine of freed memory is small: an execution frees
# little, and touching new pages all the time would take a quarter of the time.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:quarantine_size_mb=32}"
[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=true -Db_lundef=false \
    -Db_sanitize=address,undefined -Dbuildtype=debugoptimized -Ddashboard=disabled -Dtests=disabled "-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=all" \
    >build-fuzz.log 2>&1 || { tail -n 20 build-fuzz.log; exit 1; }
ninja -C build-fuzz fuzzers >build-fuzz/log 2>&1 || { grep -E "error|FAILED" -A8 build-fuzz/log; exit 1; }
count=0
for target in build-fuzz/fuzz/fuzz_*; do
    if [ ! -f "$target" ] || [ ! -x "$target" ]; then continue; fi
    name=${target##*/fuzz_}
    mkdir -p "build-fuzz/corpus/$name" "fuzz/corpus/$name"
    echo "== $name for $seconds s"
    "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="build-fuzz/$name-" "build-fuzz/corpus/$name" "fuzz/corpus/$name"
    count=$((count + 1))
done
echo "$count targets, no finding"
