#!/bin/bash
# Makes portable binaries: dist/perjoule-VERSION-linux-ARCH.tar.gz for x86_64 and
# aarch64, which need a Linux with glibc 2.28 (2018) or later and nothing else; all other libraries are linked
# statically (THIRD-PARTY-NOTICES in the archive; beside it a bill of materials, .cdx.json). A fully static program (such as with musl) could not load NVIDIA's management library.
#
#   dist-bin.sh [ARCH...]
#   dist-bin.sh --sources                only fetches and checks what a release is made of
#   dist-bin.sh --library BUILD ARCH     only libperjoule, for a wheel: build-dist-bin/wheel-ARCH/; also macos-arm64
#
# The libraries' sources are the distribution's source packages, fetched and verified by this machine's
# apt, and compiled with Zig. Mirrors do not always have every source. Missing ones are searched on the mirrors in
# PERJOULE_SOURCE_MIRRORS (URLs of folders with a pool/, of Debian or Ubuntu, which share most sources) and verified
# against the signed .dsc, or lie in one of these folders itself, as in that of an earlier release, or can be put into
# build-dist-bin/sources by hand. tools/release-sources.sha256 holds their hashes: another content is refused, wherever
# it came from. The archives become part of the release (dist/sources), so that the next one has a second place for them.
set -eu
cd "$(dirname "$0")/.."
glibc=2.28
out=$PWD/build-dist-bin
packages="zlib utf8proc jansson pcre2 wslay libmicrohttpd sqlite3"
of_library="zlib jansson sqlite3"
version=$(tools/version.sh)
mkdir -p "$out/sources" "$out/bin" dist

# ---- sources ----------------------------------------------------------------------------------

debian_name() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) echo "$1" ;; esac; }
# This machine's mirrors with their keys, one per line: MIRROR SUITE COMPONENT ORIGIN
mirrors() {
    # shellcheck disable=SC2016  # apt's variables
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        sort -u | grep -E ' (Debian|Ubuntu)$' || true
}
# Configures a private apt: for source packages (deb-src), or for another architecture (deb).
prepare_apt() { # folder, deb-src or deb, Debian's name of the architecture
    local keys
    mkdir -p "$1/lists/partial"
    mirrors | while read -r mirror suite component origin; do
        keys=/usr/share/keyrings/$(echo "$origin" | tr DU du)-archive-keyring.gpg
        [ -e "$keys" ] && keys="[signed-by=$keys] " || keys=''
        echo "$2 $keys$mirror $suite $component"
    done >"$1/sources.list"
    [ -s "$1/sources.list" ] || { echo "dist-bin: this machine's apt knows no Debian or Ubuntu mirror" >&2; exit 3; }
    cat >"$1/apt.conf" <<EOF
Dir::State::lists "$1/lists";
Dir::Etc::sourcelist "$1/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
APT::Architecture "$3";
APT::Architectures { "$3"; };
EOF
}
have_source() { ls "$out/sources/$1"_*.orig.tar.* >/dev/null 2>&1; }
# Newest version first, one mirror at a time: a mirror may lack files that its index lists.
fetch_source() { # name
    local list each
    for list in "$out"/apt/sources.list "$out"/apt/mirror-*; do
        for each in $(apt-cache -o "Dir::Etc::sourcelist=$list" madison "$1" | awk '{ print $3 }' | sort -Vru); do
            (cd "$out/sources" && apt-get -o "Dir::Etc::sourcelist=$list" source --download-only -qq "$1=$each") \
                >"$out/apt/log" 2>&1 && return
        done
    done
}
# Fetches the files that a package's .dsc lists, from any mirror that has them.
fetch_elsewhere() { # name
    local description letters=${1:0:1} mirror component sum file
    description=$(find "$out/sources" -name "$1_*.dsc" | sort -V | tail -n 1)
    [ -n "$description" ] || return 0
    case $1 in lib*) letters=${1:0:4} ;; esac
    sed -n '/^Checksums-Sha256:/,/^[A-Z][a-z]*:$/p' "$description" | awk 'NF == 3 { print $1, $3 }' |
        while read -r sum file; do
            for mirror in ${PERJOULE_SOURCE_MIRRORS:-}; do for component in main universe; do
                [ ! -e "$out/sources/$file" ] || continue
                curl -fsSL -o "$out/part" "$mirror/pool/$component/$letters/$1/$file" 2>/dev/null || continue
                echo "$sum  $out/part" | sha256sum --check --quiet && mv "$out/part" "$out/sources/$file"
            done; done
        done
}
# From a folder without signatures, by the hash alone.
fetch_by_hash() { # name
    local mirror sum file
    grep "  $1_" tools/release-sources.sha256 | while read -r sum file; do
        for mirror in ${PERJOULE_SOURCE_MIRRORS:-}; do
            [ ! -e "$out/sources/$file" ] || continue
            curl -fsSL -o "$out/part" "$mirror/$file" 2>/dev/null || continue
            echo "$sum  $out/part" | sha256sum --check --status && mv "$out/part" "$out/sources/$file"
        done
    done || true
}
check_hashes() {
    local sum file
    while read -r sum file; do
        [ -e "$out/sources/$file" ] || continue
        echo "$sum  $out/sources/$file" | sha256sum --check --status || {
            echo "dist-bin: $out/sources/$file is not the archive of tools/release-sources.sha256" >&2
            exit 3
        }
    done <tools/release-sources.sha256
}
fetch_sources() {
    local name missing=''
    for name in $packages; do have_source "$name" || missing="$missing $name"; done
    [ -n "$missing" ] || { check_hashes; return 0; }
    prepare_apt "$out/apt" deb-src "$(debian_name "$(uname -m)")"
    split -l 1 "$out/apt/sources.list" "$out/apt/mirror-"
    export APT_CONFIG=$out/apt/apt.conf
    apt-get update -qq
    for name in $missing; do
        fetch_source "$name"
        have_source "$name" || fetch_elsewhere "$name"
        have_source "$name" || fetch_by_hash "$name"
        have_source "$name" || {
            tail -n 3 "$out/apt/log" >&2 2>/dev/null || true
            echo "dist-bin: no mirror has the source of $name: name another in PERJOULE_SOURCE_MIRRORS, or the folder" \
                "of an earlier release's sources, or put its .orig.tar archive into build-dist-bin/sources" >&2
            exit 3
        }
    done
    unset APT_CONFIG
    check_hashes
}

# Unpacks packages of the target's architecture into one folder.
fetch_packages() { # arch, folder, package...
    local arch=$1 folder=$2 apt=$out/apt-$1
    shift 2
    [ -e "$apt/apt.conf" ] || prepare_apt "$apt" deb "$(debian_name "$arch")"
    mkdir -p "$apt/packages" "$folder"
    rm -f "$apt/packages"/*.deb
    (
        export APT_CONFIG=$apt/apt.conf
        apt-get update -qq
        cd "$apt/packages"
        apt-get download -qq "$@"
    )
    find "$apt/packages" -name '*.deb' -exec dpkg-deb -x {} "$folder" \;
}
# The C library of another architecture, with which the emulator runs the programs.
fetch_runtime() { # arch
    [ ! -e "$out/runtime-$1/complete" ] || return 0
    fetch_packages "$1" "$out/runtime-$1" libc6
    : >"$out/runtime-$1/complete"
}

# The headers of PostgreSQL's client library (libpq), which is loaded at run time if present. This machine's headers
# are used, because they are the same on every 64-bit Linux.
take_postgres_headers() { # folder with lib/pkgconfig and include
    local from
    from=$(pkg-config --variable=includedir libpq) || { echo "dist-bin: libpq's headers are not here (package libpq-dev)" >&2; exit 3; }
    mkdir -p "$1/include/postgresql"
    cp "$from"/libpq-fe.h "$from"/postgres_ext.h "$from"/pg_config_ext.h "$1/include/postgresql/"
    cat >"$1/lib/pkgconfig/libpq.pc" <<EOF
Name: libpq
Description: the headers of PostgreSQL's client library
Version: $(pkg-config --modversion libpq)
Cflags: -isystem $1/include/postgresql
EOF
}

# Likewise those of Vulkan.
take_vulkan_headers() { # folder with include
    local from=/usr/include
    [ -e "$from/vulkan/vulkan_core.h" ] || { echo "dist-bin: Vulkan's headers are not here (package libvulkan-dev)" >&2; exit 3; }
    mkdir -p "$1/include"
    cp -r "$from/vulkan" "$from/vk_video" "$1/include/"
}

# ---- one target -------------------------------------------------------------------------------

triple_of() { # arch: the target's name for the compiler
    case $1 in macos-arm64) echo aarch64-macos.11.0 ;; *) echo "$1-linux-gnu.$glibc" ;; esac
}
make_compiler() { # arch
    cat >"$out/bin/cc-$1" <<EOF
#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR="$out/cache" ZIG_LOCAL_CACHE_DIR="$out/cache"
target=$(triple_of "$1")
# for -dM (predefined macros) zig passes the versioned target on to clang, which rejects it
case " \$* " in *" -dM "*) target=$1-linux-gnu ;; esac
# older versions of meson do not recognise zig's linker; it takes lld's options
case " \$* " in *" -Wl,--version "*) echo "LLD (compatible with GNU linkers)"; exit 0 ;; esac
# zig has names of its own for Arm's architecture levels
for word; do
    case \$word in -march=armv8.[0-9]-a*)
        word=\$(echo "\$word" | sed 's/-march=armv8\.\([0-9]\)-a/-mcpu=generic+v8_\1a/') ;;
    esac
    shift
    set -- "\$@" "\$word"
done
exec "$zig/zig" cc -target \$target "\$@"
EOF
    printf '#!/bin/sh\nexec "%s/zig" ar "$@"\n' "$zig" >"$out/bin/ar"
    chmod +x "$out/bin"/*
}
emulator_of() { # arch: what runs its programs here; nothing for this machine's own
    [ "$1" != "$(uname -m)" ] || return 0
    command -v "qemu-$1-static" || command -v "qemu-$1" || { echo "dist-bin: nothing runs $1 here (package qemu-user)" >&2; exit 3; }
}
make_cross_file() { # arch
    local emulator wrapper='' runs_here
    emulator=$(emulator_of "$1")
    [ -z "$emulator" ] || wrapper="exe_wrapper = ['$emulator', '-L', '$out/runtime-$1']"
    [ -z "$emulator" ] && runs_here=true || runs_here=false
    cat <<EOF
[binaries]
c = '$out/bin/cc-$1'
ar = '$out/bin/ar'
strip = 'true'
pkgconfig = 'pkg-config'
pkg-config = 'pkg-config'
$wrapper
[built-in options]
c_link_args = ['-s']
[properties]
runs_here = $runs_here
pkg_config_libdir = ['$out/libs-$1/lib/pkgconfig']
[host_machine]
system = 'linux'
cpu_family = '$1'
cpu = '$1'
endian = 'little'
EOF
}
# Any needed library outside the C library would be missing on the user's machine.
check_needs() { # program
    local needed newest
    needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux-[a-z0-9-]*)\.so\.[0-9]$' || true)
    [ -z "$needed" ] || { echo "dist-bin: $1 still needs $needed" >&2; exit 1; }
    # not Zig's default, unlike that of the distributions' compilers
    readelf --file-header "$1" | grep -q 'Type: *DYN' || { echo "dist-bin: $1 is not position-independent" >&2; exit 1; }
    newest=$(readelf --version-info "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
    [ "$(printf '%s\n%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] || { echo "dist-bin: $1 needs glibc $newest" >&2; exit 1; }
}
build_target() { # arch
    local arch=$1 name=perjoule-$version-linux-$1 tree each
    tree=$out/$name
    make_compiler "$arch"
    [ -e "$out/libs-$arch/complete" ] || {
        tools/dist-bin-libs.sh "$out/sources" "$out/bin/cc-$arch" "$out/bin/ar" "$arch-linux-gnu" "$out/libs-$arch"
        : >"$out/libs-$arch/complete"
    }
    take_postgres_headers "$out/libs-$arch"
    take_vulkan_headers "$out/libs-$arch"
    [ "$arch" = "$(uname -m)" ] || fetch_runtime "$arch"
    make_cross_file "$arch" >"$out/cross-$arch.ini"
    [ -f "$out/build-$arch/build.ninja" ] ||
        meson setup "$out/build-$arch" --cross-file "$out/cross-$arch.ini" --prefix /usr/local --libdir lib \
            -Dtests=disabled -Dpostgres=enabled -Db_pie=true >"$out/log" 2>&1 || { tail -n 20 "$out/log" >&2; exit 1; }
    ninja -k 0 -C "$out/build-$arch" >"$out/log" 2>&1 || { grep -E 'error|FAILED' -A6 "$out/log" | head -n 40 >&2; exit 1; }
    rm -rf "$tree" "$out/tree"
    DESTDIR=$out/tree meson install -C "$out/build-$arch" --no-rebuild --quiet >/dev/null
    mv "$out/tree/usr/local" "$tree"
    rm -rf "$out/tree" "$tree/lib/systemd" "$tree"/lib/*.a # the archives want the libraries beside them
    for each in "$tree"/bin/perjoule* "$tree"/lib/*.so.*.* "$tree"/lib/perjoule/*.so; do check_needs "$each"; done
    # manual pages and completions do not depend on the target; a native build generates them
    if [ "$arch" = "$(uname -m)" ]; then
        rm -rf "$out/texts"
        mkdir "$out/texts"
        cp -r "$tree"/share/{man,bash-completion,zsh,fish} "$out/texts/"
    elif [ -d "$out/texts" ]; then
        cp -r "$out/texts/." "$tree/share/"
    fi
    cp README.md LICENSE CHANGELOG.md "$tree/"
    # shellcheck disable=SC2086  # a list of words
    python3 tools/notices.py --ui ui --sources "$out/sources" $packages --sbom "dist/$name.cdx.json" >"$tree/THIRD-PARTY-NOTICES"
    tar -C "$out" --sort=name --owner=0 --group=0 -czf "$out/archive" "$name"
    mv "$out/archive" "dist/$name.tar.gz"
    echo "dist/$name.tar.gz"
}

# libperjoule with its libraries linked in, from the sources and flags of a configured build.
build_library() { # build, arch
    local libs=$out/libs-$2 made=$out/wheel-$2 system=linux name=libperjoule.so.0
    case $2 in macos-*) system=macos name=libperjoule.0.dylib ;; esac
    make_compiler "$2"
    [ -e "$libs/complete" ] || libs=$out/libs-of-library-$2
    [ -e "$libs/complete" ] || {
        # shellcheck disable=SC2086  # a list of words
        tools/dist-bin-libs.sh "$out/sources" "$out/bin/cc-$2" "$out/bin/ar" "$2" "$libs" $of_library >&2
        : >"$libs/complete"
    }
    mkdir -p "$made"
    # shellcheck disable=SC2086  # a list of words
    python3 tools/notices.py --sources "$out/sources" $of_library --sbom "$made/cdx.json" >"$made/THIRD-PARTY-NOTICES"
    python3 tools/wheel_library.py "$1" "$libs" "$out/bin/cc-$2" $system "$made/$name"
    [ $system != linux ] || check_needs "$made/$name"
    echo "$made/$name"
}

if [ "${1:-}" = --library ]; then
    packages=$of_library
    fetch_sources
    zig=$(tools/zig.sh)
    build_library "$2" "$3"
    exit
fi
fetch_sources
if [ "${1:-}" = --sources ]; then
    ls "$out"/sources/*.orig.tar.*
    exit
fi
zig=$(tools/zig.sh)
[ $# -gt 0 ] || set -- x86_64 aarch64
for each; do build_target "$each"; done
# The LGPL's condition for linking libmicrohttpd statically: its source goes along (tools/notices.py says how to use
# another). The others' too: the next release finds them there.
mkdir -p dist/sources
cp "$out"/sources/* dist/sources/
