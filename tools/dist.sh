#!/bin/sh
# A source archive, dist/perjoule-VERSION.tar.xz, with the page built, so that a machine without node
# can build from it. Usage: dist.sh BUILD [FOLDER]
set -eu
build=$1 out=${2:-dist}
version=$(tools/version.sh)
name=perjoule-$version
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git archive --prefix="$name/" HEAD | tar -x -C "$tree"
page=
for folder in ui/dist "$build/ui/page"; do
    [ -f "$folder/index.html" ] && page=$folder
done
if [ -n "$page" ]; then
    mkdir -p "$tree/$name/ui/dist"
    cp -r "$page/." "$tree/$name/ui/dist/"
    : >"$tree/$name/ui/dist/PREBUILT" # tells the build to take the page as it lies
else
    echo "the page is not built; the archive goes without it" >&2
fi
mkdir -p "$out"
tar -C "$tree" --sort=name --owner=0 --group=0 -cJf "$out/$name.tar.xz" "$name"
echo "$out/$name.tar.xz"
