#!/bin/sh
# Installs a build, or removes it: install.sh [--remove] BUILD PREFIX DESTDIR
# A build configured for another prefix is reconfigured first; sudo is used for folders that need it; ldconfig is run
# after installing the library into the system.
set -eu
remove=
if [ "$1" = --remove ]; then remove=yes; shift; fi
build=$1 prefix=$2 destdir=$3
case $prefix in /*) ;; *) echo "PREFIX is an absolute folder, not \"$prefix\"" >&2; exit 2 ;; esac

configured=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
if [ -z "$remove" ] && [ "$configured" != "$prefix" ]; then
    meson configure "$build" --prefix "$prefix"
    ninja -C "$build" program
fi

# the nearest existing parent decides whether sudo is needed
target=$destdir$prefix
while [ ! -e "$target" ]; do target=$(dirname "$target"); done
as_needed() {
    if [ -w "$target" ] || [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "$target is not writable; install as root, or with PREFIX=\$HOME/.local" >&2; exit 3
    fi
}

if [ -n "$remove" ]; then
    as_needed python3 tools/uninstall.py "$build" "$prefix" "$destdir"
else
    as_needed env DESTDIR="$destdir" meson install -C "$build" --no-rebuild --quiet
    # files that root wrote into the build folder are given back to its owner
    # shellcheck disable=SC2012  # stat's options differ between systems
    owner=$(ls -ld "$build" | awk '{ print $3 }')
    as_needed chown "$owner" "$build"/meson-logs/install-log.txt
    echo "perjoule is installed in $destdir$prefix"
fi
if [ -z "$destdir" ] && [ "$(uname -s)" = Linux ]; then
    case $prefix in /usr | /usr/local) as_needed env PATH="$PATH:/usr/sbin:/sbin" ldconfig ;; esac
fi
case :$PATH: in *:$prefix/bin:*) ;; *)
    [ -n "$remove$destdir" ] || echo "It is not on your PATH; this shell finds it after: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
