#!/bin/bash
# Tests the archives of `make dist-bin` as users run them: check-dist-bin.sh [ROOT...]
# Each ROOT is a folder or tar with a distribution's root file system, preferably an old one; the x86_64 program runs
# inside it (needs root). The aarch64 program runs under an emulator, with the C library that dist-bin.sh fetched for
# it. Each must run the demo model, store and show a run, answer over HTTP with the dashboard's page and its script,
# and open NVIDIA's management library (a fake one). No program or library inside may ask for more than glibc 2.28's
# own libraries and symbols.
set -eu
cd "$(dirname "$0")/.."
version=$(tools/version.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fake_library() { # arch
    build-dist-bin/bin/cc-"$1" -shared -fPIC -w -o "$work/libfake-nvml-$1.so" tests/unit/vendor/fake_nvml.c
}
# Script run inside: $1 is the program's folder, $2 the fake library, $3 a command to prefix the program with.
cat >"$work/try.sh" <<'EOF'
set -eu
program="$3 $1/bin/perjoule"
export HOME=/tmp PERJOULE_DB=/tmp/perjoule-try-$$.db PERJOULE_NVML=$2 PERJOULE_POWER=none
cd /
$program --version
$program run -n 8 "Once upon a time" >/dev/null
$program show last >/dev/null
$program tokenize "The kettle" -m demo >/dev/null
FAKE_NVML=gpus=2 $program sensors --json | grep -q '"nvml","state":"ready"' || { echo "the NVML library could not be opened"; exit 1; }
# PostgreSQL support is built in: the error must be the missing client library or server, not the build
$program ls --db postgresql://nobody@127.0.0.1:1/none 2>&1 | grep -qE 'cannot be reached|libpq' || { echo "built without PostgreSQL"; exit 1; }
$program serve --port 0 >/tmp/perjoule-try-$$.log 2>&1 &
server=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -q http /tmp/perjoule-try-$$.log && break
    sleep 0.5
done
port=$(sed -n 's,.*http://127\.0\.0\.1:\([0-9]*\)/.*,\1,p' /tmp/perjoule-try-$$.log)
[ -n "$port" ] || { cat /tmp/perjoule-try-$$.log; exit 1; }
# The page and the script it names, both whole; bash's own sockets, since a bare distribution has no HTTP client
get() { # path
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$1" "$port" >&3
    cat <&3 >/tmp/perjoule-try-$$.answer
    exec 3>&-
    head -n 1 /tmp/perjoule-try-$$.answer | grep -q ' 200 ' || { echo "GET $1:"; cat /tmp/perjoule-try-$$.answer; exit 1; }
}
get /
script=$(sed -n 's,.*<script [^>]*src="\./\(assets/[^"]*\)".*,/\1,p' /tmp/perjoule-try-$$.answer)
grep -q '<div id="app">' /tmp/perjoule-try-$$.answer && [ -n "$script" ] || { echo "built without the dashboard"; exit 1; }
get "$script"
[ "$(wc -c </tmp/perjoule-try-$$.answer)" -gt 1000 ] || { echo "$script is empty"; exit 1; }
kill -INT $server
wait $server || [ $? = 130 ]
rm -rf /tmp/perjoule-try-$$*
EOF
verdict() { # name, status
    if [ "$2" = 0 ]; then echo "ok    $1"; else echo "FAIL  $1"; failed=1; fi
}
# Checks every program and library of an archive: needed libraries and symbol versions.
glibc_alone() { # folder
    local file needed newest bad=0
    while read -r file; do
        readelf -h "$file" >/dev/null 2>&1 || continue
        needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
            grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux-[a-z0-9-]*)\.so\.[0-9]$' || true)
        newest=$(readelf --version-info "$file" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
        [ -z "$needed" ] || { echo "${file#"$1"/} needs $needed"; bad=1; }
        [ "$(printf '%s\n' GLIBC_2.28 "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] ||
            { echo "${file#"$1"/} needs $newest"; bad=1; }
    done < <(find "$1" -type f)
    return $bad
}
unpack() { tar -C "$work" -xzf "dist/perjoule-$version-linux-$1.tar.gz"; }

unpack x86_64
status=0
glibc_alone "$work/perjoule-$version-linux-x86_64" || status=$?
verdict "x86_64 needs glibc 2.28 and nothing else" $status
fake_library x86_64
status=0
bash "$work/try.sh" "$work/perjoule-$version-linux-x86_64" "$work/libfake-nvml-x86_64.so" "" || status=$?
verdict "x86_64 on this machine" $status
for root in "$@"; do
    folder=$root
    if [ -f "$root" ]; then
        folder=$work/root
        rm -rf "$folder"
        mkdir -p "$folder"
        tar -C "$folder" --exclude='./dev/*' -xf "$root"
    fi
    cp -r "$work/perjoule-$version-linux-x86_64" "$work/libfake-nvml-x86_64.so" "$work/try.sh" "$folder/tmp/"
    status=0
    # shellcheck disable=SC2016  # expanded by the inner shell
    unshare --mount sh -c 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec chroot "$0" bash /tmp/try.sh "$@"' \
        "$folder" "/tmp/perjoule-$version-linux-x86_64" /tmp/libfake-nvml-x86_64.so "" || status=$?
    verdict "x86_64 in $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$folder/etc/os-release")" $status
    rm -rf "$folder/tmp/perjoule-$version-linux-x86_64"
done

emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ -e "dist/perjoule-$version-linux-aarch64.tar.gz" ] && [ -n "$emulator" ]; then
    unpack aarch64
    status=0
    glibc_alone "$work/perjoule-$version-linux-aarch64" || status=$?
    verdict "aarch64 needs glibc 2.28 and nothing else" $status
    fake_library aarch64
    status=0
    bash "$work/try.sh" "$work/perjoule-$version-linux-aarch64" "$work/libfake-nvml-aarch64.so" \
        "$emulator -L $PWD/build-dist-bin/runtime-aarch64" || status=$?
    verdict "aarch64 under the emulator" $status
else
    echo "skip  aarch64: no archive, or no emulator (package qemu-user)"
fi
exit $failed
