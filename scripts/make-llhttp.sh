#!/usr/bin/env bash
# Usage: make-llhttp.sh PYTHON FOLDER. Fetches the source named in llhttp.txt and fills FOLDER with include/ and lib/.
set -euo pipefail
python=$1 into=$2
here=$(cd "$(dirname "$0")" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debian's own Python has no pip; a throw-away environment has one.
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" --quiet --disable-pip-version-check download --no-deps --no-binary :all: \
    --require-hashes --requirement "$here/llhttp.txt" --dest "$work"
tar -C "$work" -xf "$work"/httptools-*.tar.gz
source=$(echo "$work"/httptools-*/vendor/llhttp)

mkdir -p "$into/include" "$into/lib"
for name in api http llhttp; do
    cc -std=c11 -O2 -g -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -I"$source/include" \
        -c "$source/src/$name.c" -o "$work/$name.o"
done
ar rcs "$into/lib/libllhttp.a" "$work"/{api,http,llhttp}.o
cp "$source/include/llhttp.h" "$into/include/"
cp "$source"/LICENSE* "$into/"
