#!/bin/sh
# Cross-compilation checks: compiles every source for macOS on Apple Silicon, and builds the NEON kernels with their
# test, which runs under an emulator. Uses the Zig toolchain
# (tools/zig.sh). A source that does not compile, a missing tool and a failed test are failures.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/build-cross
mkdir -p "$out"
export ZIG_GLOBAL_CACHE_DIR="$out/zig-cache" ZIG_LOCAL_CACHE_DIR="$out/zig-cache"
zig="$(tools/zig.sh)/zig cc"

warnings="-std=gnu17 -Wall -Wextra -Werror -Wshadow -Wvla -Wwrite-strings -Wstrict-prototypes
 -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wundef -Wno-missing-field-initializers
 -Wno-sign-compare -Wno-unused-parameter -Wno-unknown-warning-option -Wno-unused-command-line-argument"
version=$(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" meson.build | head -n 1)
cat >"$out/texts.h" <<EOF
#define PJ_VERSION_TEXT "$version"
#define PJ_DATADIR "/usr/local/share/perjoule"
#define PJ_INJECTED_DIR "/usr/local/lib/perjoule"
EOF
common="-D_GNU_SOURCE -include $out/texts.h -fno-math-errno -Iinclude -Isrc -I."

# Prints how a kernel source is compiled: one line "object flags" per instruction set.
kernel_variants() {
    case $1 in
    *_vector.c) echo "neon -ffp-contract=fast -DPJ_SET=neon" ;;
    */neon.c) echo "neon -ffp-contract=fast -DPJ_SET=neon" ;;
    */codes_neon.c)
        echo "dotprod -ffp-contract=fast -mcpu=generic+dotprod -DPJ_SET=dotprod"
        echo "i8mm -ffp-contract=fast -mcpu=generic+dotprod+i8mm -DPJ_SET=i8mm"
        ;;
    */avx2.c | */avx512.c | */vnni.c | */vbmi.c | */bf16.c | */attention_bf16.c | */amx.c | */codes_avx2.c) ;; # another processor
    *) echo "c -ffp-contract=off" ;;
    esac
}

# compile TARGET SOURCE EXTRA-FLAGS: all variants, objects under build-cross/TARGET
compile() {
    kernel_variants "$2" | while read -r variant flags; do
        object="$out/$1/$(echo "${2%.c}" | tr / _)_$variant.o"
        # shellcheck disable=SC2086
        $zig -target "$1" $warnings $common $3 $flags -O2 -c "$2" -o "$object" || exit 1
    done
}

# ---- every source for macOS -------------------------------------------------------------------

# Third-party headers, without this machine's C library headers.
headers="$out/headers"
rm -rf "$headers"
mkdir -p "$headers"
multiarch=$(cc -print-multiarch 2>/dev/null || true)
for h in jansson.h jansson_config.h sqlite3.h pcre2.h utf8proc.h microhttpd.h wslay zlib.h \
    zconf.h libpq-fe.h postgres_ext.h pg_config_ext.h vulkan vk_video; do
    for dir in /usr/include /usr/include/postgresql "/usr/include/$multiarch"; do
        if [ -e "$dir/$h" ]; then ln -sf "$dir/$h" "$headers/$h"; fi
    done
done

macos=aarch64-macos
mkdir -p "$out/$macos"
count=0
failed=0
# src/inject/ is preloaded into programs on Linux only
for source in $(find src bench -name '*.c' -not -path 'src/inject/*' | sort); do
    if [ -z "$(kernel_variants "$source")" ]; then continue; fi
    if compile $macos "$source" "-isystem $headers"; then
        count=$((count + 1))
    else
        echo "cross: $source does not compile for macOS"
        failed=$((failed + 1))
    fi
done
echo "cross: $count sources compile for $macos, $failed do not"
[ $failed -eq 0 ] && [ $count -gt 100 ] || exit 1

# ---- NEON kernels, run ------------------------------------------------------------------------

linux=aarch64-linux-musl
mkdir -p "$out/$linux"
rm -f "$out/$linux"/*.o
for source in src/base/*.c src/engine/files/dtype.c src/engine/kernels/*.c tests/unit/engine/*kernel*.c; do
    case $source in */json*.c | */utf8.c | */ahead_kept.c) continue ;; esac
    compile $linux "$source" "-Itools/cross"
done
$zig -target $linux "$out/$linux"/*.o -o "$out/test_kernels_neon" -lm
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
if [ "$(uname -m)" = aarch64 ]; then
    "$out/test_kernels_neon"
elif [ -n "$emulator" ]; then
    "$emulator" -cpu max "$out/test_kernels_neon"
else
    echo "cross: nothing here runs aarch64 programs (package qemu-user)" >&2
    exit 3
fi
