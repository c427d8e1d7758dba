#!/bin/sh
# Profiles the demo model ten times, then serves the dashboard. Usage: run-demo.sh PROGRAM PORT
# Later invocations keep the first profile and only start the server. Ctrl-C shuts it down cleanly.
set -eu
program=$1 port=$2
model=models/demo
power=${PERJOULE_POWER:-auto,estimate}
url=http://127.0.0.1:$port/

# checked first, because the run takes time
if ! python3 - "$port" <<'PYTHON'
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    listener.bind(("127.0.0.1", int(sys.argv[1])))
except (OSError, ValueError, OverflowError):
    sys.exit(1)
PYTHON
then
    echo "port $port is taken (or not a port); another one: make run PORT=$((port + 1))" >&2
    exit 3
fi

if ! "$program" ls --json --experiment first-run --limit 1 2>/dev/null | grep -q '"id"'; then
    echo "perjoule profiles the demo model ten times (a few seconds), so that there is something to look at:"
    echo
    "$program" run -m "$model" --power "$power" --experiment first-run --tag demo \
        -n 400 --ignore-eos --repeat 10 "Once upon a time" || exit 1
    echo
fi
open_page=
if [ -z "${CI:-}" ] && { [ -n "${DISPLAY:-}" ] || [ -n "${WAYLAND_DISPLAY:-}" ] || [ "$(uname -s)" = Darwin ]; }; then
    open_page=--open
fi
newest=$("$program" ls --json --limit 1 2>/dev/null | sed -n 's/^\[{"id":"\([^"]*\)".*/\1/p')
echo "The dashboard: $url   (Ctrl-C ends it)"
[ -z "$newest" ] || echo "This run there: $url?view=analysis&run=$newest"
[ -z "${SSH_CONNECTION:-}" ] ||
    echo "From the machine you sit at: ssh -L $port:127.0.0.1:$port $(id -un)@$(hostname), then open $url there"
command -v perjoule >/dev/null ||
    echo "In another terminal the guide's commands work after: export PATH=\"$(cd "$(dirname "$program")" && pwd):\$PATH\""
exec "$program" serve --port "$port" --models models --power "$power" $open_page
