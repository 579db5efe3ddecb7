#!/usr/bin/env bash
# Usage: make-wheel.sh [OUT]. Builds what a wheel holds (build/wheel), installs it into a tree, and packs that (wheel.py) into OUT (dist).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
scripts/build.sh wheel
. scripts/env.sh
tree=build/wheel/tree
rm -rf "$tree"
cmake --install build/wheel --prefix "$PWD/$tree" --strip >build/wheel/install.log
parts=()
for part in "$PL_LLHTTP_DIR" "$PL_LLAMA_DIR"; do
    [[ -z $part ]] || parts+=(--parts "$part")
done
# The commit's own time, so that the same source gives the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
"$PL_PYTHON" scripts/wheel.py "$tree" --out "$out" "${parts[@]}"
