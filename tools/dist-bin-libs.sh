#!/bin/sh
# Builds the libraries perjoule links against as static archives for one target:
#   dist-bin-libs.sh SOURCES CC AR HOST OUT [LIBRARY...]
# SOURCES holds the Debian source packages' archives, CC compiles for the target, HOST is its name for
# configure scripts. Leaves OUT/lib/*.a, OUT/include and OUT/lib/pkgconfig.
set -eu
sources=$1 cc=$2 ar=$3 host=$4 out=$5
shift 5
work=$out/work
rm -rf "$out"
mkdir -p "$work" "$out/lib/pkgconfig" "$out/include"
flags="-O2 -w -fPIC -g0 -fvisibility=hidden -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -fstack-protector-strong"
# hardened as the program is (meson.build)
case $host in macos-*) ;; *) flags="$flags -fstack-clash-protection -D_FORTIFY_SOURCE=3" ;; esac
case $host in x86_64*) flags="$flags -fcf-protection" ;; esac

# Unpacks the source with the distribution's patches, or the upstream source if there are none.
unpack() { # name
    description=$(find "$sources" -name "$1_*.dsc" | sort -V | tail -n 1)
    if [ -n "$description" ] && (cd "$sources" && dpkg-source --no-check -x "$description" "$work/$1") >"$work/$1.log" 2>&1; then
        return
    fi
    rm -rf "${work:?}/$1"
    mkdir -p "$work/$1"
    archive=$(find "$sources" -name "$1_*.orig.tar.*" ! -name '*.asc' | sort -V | tail -n 1)
    tar -C "$work/$1" --strip-components=1 -xf "$archive"
}
archive() { # library, extra flags, sources in this folder
    library=$1 extra=$2
    shift 2
    mkdir -p objects
    for source in "$@"; do
        # shellcheck disable=SC2086  # lists of words
        $cc $flags $extra -c "$source" -o "objects/$(echo "${source%.c}" | tr / _).o"
    done
    rm -f "$out/lib/lib$library.a"
    $ar rcs "$out/lib/lib$library.a" objects/*.o
}
describe() { # pkg-config name, version, library, further libraries
    cat >"$out/lib/pkgconfig/$1.pc" <<EOF
Name: $1
Description: $1
Version: $2
Libs: -L$out/lib -l$3 $4
Cflags: -isystem $out/include
EOF
}
version_of() { find "$sources" -name "$1_*.orig.tar.*" | sed -n "s/.*${1}_\([0-9.]*[0-9]\)[.a-z]*\.orig.*/\1/p" | head -n 1; }

build_zlib() {
    # macOS: a declared fdopen must not become a macro
    archive z "-DHAVE_UNISTD_H -Dfdopen=fdopen" adler32.c crc32.c deflate.c inffast.c inflate.c inftrees.c trees.c zutil.c \
        compress.c uncompr.c gzclose.c gzlib.c gzread.c gzwrite.c
    cp zlib.h zconf.h "$out/include"
    describe zlib "$(version_of zlib)" z ""
}
build_utf8proc() {
    archive utf8proc "-DUTF8PROC_STATIC" utf8proc.c
    cp utf8proc.h "$out/include"
    describe libutf8proc "$(version_of utf8proc)" utf8proc ""
}
build_jansson() {
    version=$(version_of jansson)
    # the results of jansson's configure on Linux with a current C library
    sed -e 's/@json_inline@/inline/; s/@json_have_long_long@/1/; s/@json_have_localeconv@/1/' \
        -e 's/@json_have_atomic_builtins@/1/; s/@json_have_sync_builtins@/1/; s/@[a-z_]*@/0/' \
        src/jansson_config.h.in >src/jansson_config.h
    cat >src/jansson_private_config.h <<EOF
#define HAVE_STDINT_H 1
#define HAVE_UNISTD_H 1
#define HAVE_FCNTL_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_CLOSE 1
#define HAVE_GETPID 1
#define HAVE_GETTIMEOFDAY 1
#define HAVE_OPEN 1
#define HAVE_READ 1
#define HAVE_LOCALECONV 1
#define HAVE_STRTOLL 1
#define HAVE_SYNC_BUILTINS 1
#define HAVE_ATOMIC_BUILTINS 1
#define USE_URANDOM 1
#define INITIAL_HASHTABLE_ORDER 3
#define VERSION "$version"
EOF
    archive jansson "-DHAVE_CONFIG_H -Isrc" src/dump.c src/error.c src/hashtable.c src/hashtable_seed.c \
        src/load.c src/memory.c src/pack_unpack.c src/strbuffer.c src/strconv.c src/utf.c src/value.c src/version.c
    cp src/jansson.h src/jansson_config.h "$out/include"
    describe jansson "$version" jansson ""
}
build_pcre2() {
    version=$(version_of pcre2)
    cp src/config.h.generic src/config.h
    cp src/pcre2.h.generic src/pcre2.h
    cp src/pcre2_chartables.c.dist src/pcre2_chartables.c
    # headers for other sources, and programs
    units=$(find src -maxdepth 1 -name 'pcre2_*.c' |
        grep -vE 'dftables|fuzzsupport|jit_match|jit_misc|jit_neon|jit_simd|jit_test|printint|ucptables' | sort)
    # shellcheck disable=SC2086
    archive pcre2-8 "-DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -DPCRE2_STATIC -DSUPPORT_UNICODE -DSUPPORT_JIT -Isrc" \
        $units
    cp src/pcre2.h "$out/include"
    describe libpcre2-8 "$version" pcre2-8 ""
}
build_wslay() {
    version=$(version_of wslay)
    sed "s/@PACKAGE_VERSION@/$version/" lib/includes/wslay/wslayver.h.in >lib/includes/wslay/wslayver.h
    archive wslay "-DHAVE_ARPA_INET_H -DHAVE_NETINET_IN_H -Ilib/includes" lib/wslay_*.c
    mkdir -p "$out/include/wslay"
    cp lib/includes/wslay/*.h "$out/include/wslay"
    describe libwslay "$version" wslay ""
}
build_libmicrohttpd() {
    # TLS is not needed: the server listens on loopback
    CC="$cc" AR="$ar" RANLIB="$ar s" CFLAGS="-O2 -fPIC -g0" ./configure --host="$host" --disable-https --disable-shared \
        --enable-static --disable-doc --disable-examples --disable-tools --disable-curl --disable-nls \
        --disable-dauth --disable-bauth --prefix="$out" >configure.log 2>&1 || { tail -n 20 configure.log; exit 1; }
    # only configured: its makefiles need a libtool for the target
    # shellcheck disable=SC2046
    archive microhttpd "-DHAVE_CONFIG_H -I. -Isrc/include -Isrc/microhttpd" $(microhttpd_units)
    cp src/include/microhttpd.h "$out/include"
    describe libmicrohttpd "$(version_of libmicrohttpd)" microhttpd -lpthread
}
microhttpd_units() {
    for unit in connection reason_phrase daemon internal memorypool mhd_mono_clock sysfdsetsize mhd_str mhd_send \
        mhd_sockets mhd_itc mhd_compat response mhd_threads postprocessor; do
        [ ! -e "src/microhttpd/$unit.c" ] || echo "src/microhttpd/$unit.c"
    done
}
build_sqlite3() {
    # the amalgamation is made on this machine by SQLite's own scripts
    ./configure --disable-tcl --disable-readline >configure.log 2>&1 || { tail -n 20 configure.log; exit 1; }
    make sqlite3.c sqlite3.h >make.log 2>&1 || { tail -n 20 make.log; exit 1; }
    archive sqlite3 "-DSQLITE_THREADSAFE=1 -DSQLITE_ENABLE_COLUMN_METADATA -DSQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_ENABLE_FTS5
        -DSQLITE_SECURE_DELETE -DSQLITE_OMIT_LOAD_EXTENSION -DHAVE_USLEEP=1" sqlite3.c
    cp sqlite3.h "$out/include"
    describe sqlite3 "$(version_of sqlite3)" sqlite3 "-lpthread -lm"
}

[ $# -gt 0 ] || set -- zlib utf8proc jansson pcre2 wslay libmicrohttpd sqlite3
for library; do
    unpack "$library"
    # no `||` here: it would disable `set -e` for the compile commands inside
    trap 'echo "dist-bin: $library does not build for $host" >&2' EXIT
    (cd "$work/$library"; "build_$library")
    trap - EXIT
    echo "dist-bin: $library $(version_of "$library") for $host"
done
rm -rf "$work"
