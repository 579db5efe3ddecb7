#!/usr/bin/env bash
# Usage: fuzz.sh SECONDS [TARGET...]. Each target of build/fuzz in turn, or those that are named; new inputs go to
# build/fuzz/found/, crashes stop the run.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in build/fuzz/fuzz_* build/fuzz/bin/fuzz_*; do
    [[ -x $target ]] || continue
    name=${target##*/fuzz_}
    [[ $# -eq 1 || " ${*:2} " == *" $name "* ]] || continue
    found=build/fuzz/found/$name
    mkdir -p "$found"
    options=(-max_total_time="$1" -print_final_stats=1 -artifact_prefix="$found/crash-")
    [[ ! -e tests/fuzz/$name.dict ]] || options+=(-dict="tests/fuzz/$name.dict")
    echo "--- $name: $1 s"
    "$target" "${options[@]}" "$found" "tests/fuzz/corpus/$name" 2>"$found.log" || { tail -40 "$found.log" >&2; exit 1; }
    grep -E 'stat::(number_of_executed_units|peak_rss_mb)' "$found.log" || true
done
