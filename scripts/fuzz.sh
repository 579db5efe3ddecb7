#!/usr/bin/env bash
# Usage: fuzz.sh SECONDS [TARGET...]. Each target of build/fuzz in turn, or those that are named, for so many seconds of
# its own CPU time, whatever else the machine does; new inputs go to build/fuzz/found/, crashes stop the run. A line
# for each: CPU seconds, inputs tried, edges reached.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
TIMEFORMAT='%U %S'
for target in build/fuzz/fuzz_* build/fuzz/bin/fuzz_*; do
    [[ -x $target ]] || continue
    name=${target##*/fuzz_}
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    found=build/fuzz/found/$name
    mkdir -p "$found"
    options=(-print_final_stats=1 -artifact_prefix="$found/crash-")
    [[ ! -e tests/fuzz/$name.dict ]] || options+=(-dict="tests/fuzz/$name.dict")
    used=0
    inputs=0
    while ((used + 1 < seconds)); do # the fuzzer's own limit is wall time
        options_now=("${options[@]}" -max_total_time=$((seconds - used)))
        cpu=$({ time "$target" "${options_now[@]}" "$found" "tests/fuzz/corpus/$name" 2>"$found.log" >&2; } 2>&1) ||
            { tail -40 "$found.log" >&2; exit 1; }
        used=$((used + $(awk '{ print int($1 + $2 + 0.5) }' <<<"$cpu")))
        inputs=$((inputs + $(awk '/^stat::number_of_executed_units/ { print $2 }' "$found.log")))
    done
    edges=$(grep -o 'cov: [0-9]*' "$found.log" | tail -1)
    echo "$name: $used s of CPU, $inputs inputs, edges ${edges#cov: }"
done
