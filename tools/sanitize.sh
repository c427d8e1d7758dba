#!/bin/sh
# The whole suite under sanitizers: address and undefined, then thread. `make test` runs only a part of this, to save
# time.
set -eu
for kind in address,undefined thread; do
    folder=build-$(echo "$kind" | cut -c1)san
    # the thread sanitizer does not follow fences; the only ones order memory that two processes share
    [ -f "$folder/build.ninja" ] || meson setup "$folder" -Db_sanitize="$kind" -Db_lundef=false \
        -Dbuildtype=debugoptimized -Ddashboard=disabled -Dc_args=-Wno-error=tsan >/dev/null
    ninja -C "$folder"
    meson test -C "$folder" --no-rebuild --no-suite conformance --timeout-multiplier 6 --print-errorlogs
done
