#!/usr/bin/env bash
# Usage: make-deb.sh [OUT]. Builds Debian's package out of the sources as git knows them (with what is not committed yet) into OUT
# (dist), and lets lintian look at it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
. scripts/env.sh
version=$(sed -n 's/^project(plimsoll VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
packaged=$(dpkg-parsechangelog --file deploy/debian/changelog --show-field Version)
[[ $packaged == "$version" ]] || { echo "deb: deploy/debian/changelog is of $packaged, CMakeLists.txt of $version" >&2; exit 1; }

work=$PWD/build/deb
rm -rf "$work"
mkdir -p "$work/plimsoll" "$out"
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read -cf - | tar -C "$work/plimsoll" -xf -
else # the sources of a release, or a build in an image
    tar --exclude=./build --exclude=./dist -cf - . | tar -C "$work/plimsoll" -xf -
fi
mv "$work/plimsoll/deploy/debian" "$work/plimsoll/debian"
cp deploy/plimsoll.service deploy/plimsoll@.service "$work/plimsoll/debian/"
cp deploy/plimsoll.sysusers "$work/plimsoll/debian/plimsoll.sysusers"
(cd "$work/plimsoll" && PL_LLHTTP_DIR=$PL_LLHTTP_DIR dpkg-buildpackage --build=binary --no-sign >"$work/build.log" 2>&1) ||
    { cat "$work/build.log" >&2; exit 1; }
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --info --allow-root "$work"/plimsoll_*.changes
else
    echo "deb: lintian is not installed: not looked at"
fi
cp "$work"/*.deb "$out/"
ls -l "$out"/plimsoll*_"$version"_*.deb
