#!/bin/sh
# Builds dist/perjoule_VERSION_ARCH.deb from a fresh installation tree; needs dpkg-deb, not debhelper.
set -eu
version=$(tools/version.sh)
arch=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
[ -f build-deb/build.ninja ] || meson setup build-deb --prefix /usr -Dtests=disabled >/dev/null
ninja -C build-deb >/dev/null
DESTDIR=$tree meson install -C build-deb --no-rebuild --quiet >/dev/null
strip --strip-unneeded "$tree/usr/bin/perjoule" "$tree"/usr/lib/*/libperjoule.so.*.*.*
strip --strip-debug "$tree"/usr/lib/*/libperjoule.a
gzip -9n "$tree"/usr/share/man/man1/*.1
mkdir -p "$tree/DEBIAN" "$tree/usr/share/doc/perjoule" dist debian
cp LICENSE "$tree/usr/share/doc/perjoule/copyright"
# dpkg-shlibdeps wants a debian/control to read; it names the packages the program really links to.
printf 'Source: perjoule\nPackage: perjoule\nArchitecture: any\n' >debian/control
depends=$(dpkg-shlibdeps -O "$tree/usr/bin/perjoule" 2>/dev/null | sed 's/^shlibs:Depends=//')
rm -r debian
cat >"$tree/DEBIAN/control" <<EOF
Package: perjoule
Version: $version
Architecture: $arch
Maintainer: perjoule maintainers <maintainers@example.org>
Depends: $depends
Section: science
Priority: optional
Installed-Size: $(du -ks "$tree/usr" | cut -f1)
Description: energy profiler for transformer inference
 Shows where every joule of language model inference goes: phases, tokens,
 layers, components and operations, with an interval on every figure.
EOF
dpkg-deb --root-owner-group --build "$tree" "dist/perjoule_${version}_${arch}.deb" >/dev/null
echo "dist/perjoule_${version}_${arch}.deb"
