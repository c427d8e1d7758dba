#!/bin/sh
# Makes a source archive, dist/perjoule-VERSION.tar.xz, with the dashboard already built, so that a
# machine without node can build from it, and beside it what the page contains (.cdx.json).
# Usage: dist.sh BUILD [FOLDER]
set -eu
build=$1 out=${2:-dist}
version=$(tools/version.sh)
name=perjoule-$version
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git rev-parse --git-dir >/dev/null || { echo "the source archive is made from a git checkout" >&2; exit 3; }
command -v xz >/dev/null || { echo "the source archive needs xz (tools/install-deps.sh --dist)" >&2; exit 3; }
git archive --prefix="$name/" HEAD | tar -x -C "$tree"
page=
for folder in ui/dist "$build/ui/page"; do
    [ -f "$folder/index.html" ] && page=$folder
done
if [ -n "$page" ]; then
    mkdir -p "$tree/$name/ui/dist"
    cp -r "$page/." "$tree/$name/ui/dist/"
    : >"$tree/$name/ui/dist/PREBUILT" # tells the build to embed it without npm
    mkdir -p "$out"
    python3 tools/notices.py --ui ui --sbom "$out/$name.cdx.json" >"$tree/$name/THIRD-PARTY-NOTICES"
else
    echo "the page is not built; the archive goes without it" >&2
fi
mkdir -p "$out"
# renamed only when complete
tar -C "$tree" --sort=name --owner=0 --group=0 -cJf "$tree/archive" "$name"
mv "$tree/archive" "$out/$name.tar.xz"
echo "$out/$name.tar.xz"
