#!/bin/bash
# Tests installation on a bare machine: a minimal Debian root with only git, make and ca-certificates, into which the
# current commit is cloned. Runs both commands of the README, then installs, removes, packages and builds from the
# source archive; as root, and as a user with sudo. Each step is timed; a failure skips the remaining steps of that
# root.
#
#   tools/bare-root.sh [--suite bookworm] [--as root|user|both] [--work FOLDER] [STEP...]
#
# Steps: run install deb dist test (all of them, in this order, when none is named). Needs root, and
# mmdebstrap or debootstrap. The archive mirror, proxies, certificates and package tools' settings are
# taken from this machine. Exits 1 when a step failed; FOLDER keeps a log of every step.
# shellcheck disable=SC2317  # the steps are called by name
# shellcheck disable=SC2016  # what a step runs is expanded inside the root
set -eu
cd "$(dirname "$0")/.."
suite=bookworm who=both work='' steps=()
while [ $# -gt 0 ]; do
    case $1 in
    --suite) suite=$2; shift 2 ;;
    --as) who=$2; shift 2 ;;
    --work) work=$2; shift 2 ;;
    -*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) steps+=("$1"); shift ;;
    esac
done
[ ${#steps[@]} -gt 0 ] || steps=(run install deb dist test)
[ "$(id -u)" = 0 ] || { echo "bare-root: needs root, to make a root folder and enter it" >&2; exit 3; }

# A mount and PID namespace of our own, so that mounts and processes end with this script.
if [ -z "${PJ_BARE_ROOT:-}" ]; then
    args=(--suite "$suite" --as "$who")
    [ -z "$work" ] || args+=(--work "$work")
    export PJ_BARE_ROOT=1
    exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "${args[@]}" "${steps[@]}"
fi
work=${work:-$(mktemp -d /var/tmp/perjoule-bare-XXXXXX)}
mkdir -p "$work"
# A second script in the same folder would replace the root under the first, whose steps then fail for no reason of theirs.
exec 9>"$work/lock"
flock --nonblock 9 || { echo "bare-root: $work is in use by another bare-root.sh" >&2; exit 3; }
command -v mmdebstrap debootstrap >/dev/null || { echo "bare-root: needs mmdebstrap or debootstrap" >&2; exit 3; }
base=$work/$suite.tar
commit=$(git rev-parse HEAD)

# ---- the base ---------------------------------------------------------------------------------

mirrors() { apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' | sort -u; }
apt_settings() { apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Check-Date|Retries|ForceIPv4)[: ]' || true; }

make_base() {
    local mirror
    mirror=$(mirrors | awk '$3 == "Debian" && $1 !~ /security/ { print $1; exit }')
    [ -n "$mirror" ] || { echo "bare-root: this machine's apt knows no Debian mirror" >&2; exit 3; }
    apt_settings >"$work/apt.conf"
    if command -v mmdebstrap >/dev/null; then
        mmdebstrap --quiet --variant=minbase --include=git,make,ca-certificates \
            --aptopt="$work/apt.conf" "$suite" "$base" "$mirror"
    else
        debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$work/base" "$mirror"
        tar -C "$work/base" -cf "$base" .
        rm -rf "$work/base"
    fi
}

# Copies this machine's network settings into the root.
carry_network() { # root
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    cp "$work/apt.conf" "$1/etc/apt/apt.conf.d/99host"
    mkdir -p "$1/usr/local/share/ca-certificates"
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$1/usr/local/share/ca-certificates/" \;
    chroot "$1" update-ca-certificates >/dev/null 2>&1
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$1/etc/"
}
carried_environment() {
    env | grep -iE '^([a-z]+_proxy|PIP_[A-Z_]*|NPM_CONFIG_[A-Z_]*|SSL_CERT_[A-Z]*|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO)=' |
        grep -v FIND_LINKS || true
}

enter() { # COMMAND, in the source folder of $root as $user; output goes to $log
    local variables
    mapfile -t variables < <(carried_environment)
    if [ "$user" = root ]; then
        chroot "$root" env -i "${variables[@]}" HOME=/root USER=root TERM=dumb CI=1 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -ec "cd ~/perjoule; $1"
    else
        chroot --userspec=tester:tester --groups=sudo "$root" env -i "${variables[@]}" HOME=/home/tester \
            USER=tester TERM=dumb CI=1 PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games \
            bash -ec "cd ~/perjoule; $1"
    fi
}

make_root() { # as whom
    user=$1 root=$work/root-$suite-$1
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$base"
    carry_network "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    home=/root
    if [ "$user" = user ]; then
        home=/home/tester
        chroot "$root" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends sudo >/dev/null
            useradd --create-home --shell /bin/bash --groups sudo tester
            echo "tester ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/tester' >/dev/null 2>&1
    fi
    git clone --quiet --no-hardlinks . "$root$home/perjoule"
    git -C "$root$home/perjoule" checkout --quiet "$commit"
    [ "$user" = root ] || chroot "$root" chown -R tester:tester /home/tester
}

# ---- the steps --------------------------------------------------------------------------------

port() { if [ "$user" = root ]; then echo 8311; else echo 8312; fi; }

# make run serves until Ctrl-C: wait for the page, check it and the first run, then send SIGINT.
step_run() {
    local url page pid
    url=http://127.0.0.1:$(port)
    enter "exec make run PORT=$(port)" &
    pid=$!
    until curl -fsS --noproxy '*' -o "$work/page" "$url/" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || { wait "$pid"; return 1; }
        sleep 1
    done
    page=$(wc -c <"$work/page")
    echo "the page has $page bytes"
    curl -fsS --noproxy '*' "$url/api/profiling/runs" >"$work/runs"
    # SIGINT to the server, as from the terminal; this namespace has no other process of that name
    pkill -INT -f "perjoule serve --port $(port)"
    wait "$pid" || [ $? = 130 ] || return 1
    grep -q '"completed"' "$work/runs" || { echo "no completed run"; return 1; }
    grep -q '<script' "$work/page" || { echo "the page has no script in it"; return 1; }
    enter '# the line that make run prints, then the guide as printed
        PATH=$PWD/build:$PATH
        perjoule sensors
        perjoule show last
        perjoule ls'
}
step_install() {
    enter 'make install
        cd /
        perjoule --version
        perjoule run --no-store --power none -n 4 Hello
        test -s /usr/local/share/man/man1/perjoule-run.1
        cc -O2 ~/perjoule/examples/record.c -lperjoule -o /tmp/record
        /tmp/record 8 none none
        cd ~/perjoule
        make uninstall
        if find /usr/local -iname "*perjoule*" | grep .; then exit 1; fi
        make install PREFIX=$HOME/.local
        cd /
        ~/.local/bin/perjoule run --no-store --power none -n 4 Hello
        cd ~/perjoule
        make uninstall PREFIX=$HOME/.local
        if find ~/.local -iname "*perjoule*" -not -path "*/share/perjoule*" | grep .; then exit 1; fi'
}
step_deb() {
    enter 'make deb
        lintian --fail-on error dist/*.deb
        as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
        as_root apt-get install -y -qq ./dist/perjoule_*.deb
        cd /
        perjoule run --no-store --power none -n 4 Hello
        as_root apt-get remove -y -qq perjoule
        if find /usr/bin /usr/lib /usr/share /usr/include -iname "*perjoule*" | grep .; then exit 1; fi'
}
step_dist() {
    enter 'make dist
        rm -rf ~/from-archive
        mkdir ~/from-archive
        tar -C ~/from-archive -xf dist/perjoule-*.tar.xz
        cd ~/from-archive/perjoule-*
        PERJOULE_NODE=/nowhere make
        grep -c . build/ui/assets_table.c
        test "$(wc -c <build/ui/assets_table.c)" -gt 1000
        build/perjoule run --no-store --power none -n 4 Hello'
}
step_test() { enter 'make test'; }

# ---- all of it --------------------------------------------------------------------------------

failed=0
for_each_step() {
    local name log began
    for name in "${steps[@]}"; do
        log=$work/$suite-$user-$name.log
        began=$(date +%s)
        if "step_$name" >"$log" 2>&1 </dev/null; then
            echo "ok    $suite $user $name: $(($(date +%s) - began)) s"
        else
            echo "FAIL  $suite $user $name after $(($(date +%s) - began)) s, see $log:"
            tail -n 15 "$log" | sed 's/^/      /'
            failed=1
            return
        fi
    done
}

began=$(date +%s)
[ -f "$base" ] || make_base
apt_settings >"$work/apt.conf"
echo "ok    $suite base: $(($(date +%s) - began)) s, $(($(stat -c %s "$base") / 1048576)) MB; commit ${commit:0:12}; logs in $work"
for each in root user; do
    case $who in both | "$each") make_root "$each" && for_each_step ;; esac
done
exit $failed
