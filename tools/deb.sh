#!/bin/sh
# Builds dist/perjoule_VERSION_ARCH.deb from a fresh installation tree. Needs dpkg-dev, not debhelper;
# `lintian --fail-on error` accepts the package.
set -eu
version=$(tools/version.sh)
arch=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
[ -f build-deb/build.ninja ] ||
    meson setup build-deb --prefix /usr --libdir "lib/$triplet" -Dtests=disabled >build-deb.log 2>&1 || {
        tail -n 20 build-deb.log >&2; exit 1; }
ninja -C build-deb
DESTDIR=$tree meson install -C build-deb --no-rebuild --quiet >/dev/null
library=$(find "$tree/usr/lib" -name 'libperjoule.so.*.*.*')
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree"/usr/bin/perjoule* "$library" \
    "$tree/usr/lib/$triplet/perjoule"/*.so
strip --strip-debug "$tree/usr/lib/$triplet/libperjoule.a"
chmod 644 "$library" "$tree/usr/lib/$triplet/perjoule"/*.so
gzip -9n "$tree"/usr/share/man/man1/*.1

doc=$tree/usr/share/doc/perjoule
mkdir -p "$tree/DEBIAN" "$doc" dist
year=$(git log -1 --format=%cd --date=format:%Y 2>/dev/null || date +%Y)
cat >"$doc/copyright" <<EOF
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: perjoule

Files: *
Copyright: $year the perjoule authors
License: Apache-2.0
 On Debian systems the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
EOF
# The page contains packages of others; the libraries are Debian's own packages.
python3 tools/notices.py --ui ui --sbom "dist/perjoule_${version}_${arch}.cdx.json" >"$doc/THIRD-PARTY-NOTICES"
cat >>"$doc/copyright" <<EOF

Files: usr/bin/perjoule
Copyright: the authors named in /usr/share/doc/perjoule/THIRD-PARTY-NOTICES
License: Apache-2.0 and MIT and ISC and BSD-3-clause
 The page inside the program contains packages under the last three licences, whose full texts
 are in /usr/share/doc/perjoule/THIRD-PARTY-NOTICES.
EOF
# the maintainer, from the variables that Debian's tools use
maintainer="${DEBFULLNAME:-perjoule maintainers} <${DEBEMAIL:-maintainers@perjoule.invalid}>"
{
    printf 'perjoule (%s) unstable; urgency=medium\n\n' "$version"
    printf '  * Release %s; CHANGELOG.md in the source lists the changes.\n\n' "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(git log -1 --format=%cD 2>/dev/null || date -R)"
} | gzip -9n >"$doc/changelog.gz"

# dpkg-shlibdeps needs a debian/control; it finds the packages the program links against.
work=$(mktemp -d)
mkdir "$work/debian"
printf 'Source: perjoule\nPackage: perjoule\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$tree/usr/bin/perjoule" -e"$tree/usr/bin/perjoule-bench" -e"$library" 2>"$work/log" | sed 's/^shlibs:Depends=//') || {
    cat "$work/log" >&2; exit 1; }
[ -n "$depends" ] || { echo "dpkg-shlibdeps names no packages:" >&2; cat "$work/log" >&2; exit 1; }
rm -r "$work"

cat >"$tree/DEBIAN/control" <<EOF
Package: perjoule
Version: $version
Architecture: $arch
Maintainer: $maintainer
Depends: $depends
Recommends: libpq5, libcurl4, libvulkan1
Section: science
Priority: optional
Installed-Size: $(du -ks "$tree/usr" | cut -f1)
Description: energy profiler for transformer inference
 Shows where every joule of language model inference goes: phases, tokens,
 layers, components and operations, with an interval on every figure.
EOF
# shlibs: the dependency of packages that link against the library; triggers: run ldconfig
echo "libperjoule 0 perjoule (>= $version)" >"$tree/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$tree/DEBIAN/triggers"
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$library" "$tree/usr/lib/$triplet/perjoule"/*.so
dpkg-deb --root-owner-group --build "$tree" "dist/perjoule_${version}_${arch}.deb" >/dev/null
echo "dist/perjoule_${version}_${arch}.deb"
