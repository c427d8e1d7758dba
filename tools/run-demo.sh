#!/bin/sh
# Profiles the demo model once, then serves the dashboard. Usage: run-demo.sh PROGRAM PORT
# A second time the profile of before is kept and only the server starts. Ctrl-C ends it cleanly.
set -eu
program=$1 port=$2
model=models/demo
power=${PERJOULE_POWER:-auto,estimate}
url=http://127.0.0.1:$port/

if ! "$program" ls --json --experiment first-run --limit 1 2>/dev/null | grep -q '"id"'; then
    echo "perjoule profiles the demo model once, so that there is something to look at:"
    echo
    "$program" run -m "$model" --power "$power" --experiment first-run --tag demo \
        -n 96 "Once upon a time" || exit 1
    echo
fi
open_page=
if [ -z "${CI:-}" ] && { [ -n "${DISPLAY:-}" ] || [ -n "${WAYLAND_DISPLAY:-}" ] || [ "$(uname -s)" = Darwin ]; }; then
    open_page=--open
fi
echo "The dashboard: $url   (Ctrl-C ends it)"
exec "$program" serve --port "$port" --models models --power "$power" $open_page
