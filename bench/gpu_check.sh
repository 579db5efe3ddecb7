#!/usr/bin/env bash
# The same programs on a real GPU and on the dry dock, side by side, with the PyTorch of one interpreter: what is equal, what
# is not. Needs a GPU, a CUDA build of PyTorch, and a build of this clone (make build); nothing is fetched. Under three minutes.
#
#     bench/gpu_check.sh [PYTHON]          PLIMSOLL=build/dev/bin/plimsoll   GPU_CHECK_SELF=1: the dry dock against itself
#
# Status 0: allocated bytes and OOM points are equal; 1: they are not; 4: there is no GPU here.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
plimsoll=${PLIMSOLL:-}
for preset in release dev; do
    [[ -n $plimsoll || ! -x $here/build/$preset/bin/plimsoll ]] || plimsoll=$here/build/$preset/bin/plimsoll
done
[[ -n $plimsoll ]] || { echo "gpu_check: no build of plimsoll is found: make build, or set PLIMSOLL=" >&2; exit 5; }
command -v "$python" >/dev/null || { echo "gpu_check: there is no $python" >&2; exit 5; }
# A number without a GPU build of PyTorch would be about something else.
if [[ -z ${GPU_CHECK_SELF:-} ]] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    echo "gpu_check: $python has no PyTorch that sees a GPU here; nothing is compared" >&2
    exit 4
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PLIMSOLL_CACHE=${PLIMSOLL_CACHE:-$work/cache}
unset PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
measure() { "$@" "$python" "$here/bench/gpu_check.py" measure "$here/tests/drydock/snapshots.py"; }

echo "== on the GPU"
if [[ -n ${GPU_CHECK_SELF:-} ]]; then
    measure "$plimsoll" drydock --quiet -- >"$work/gpu.json"
else
    measure >"$work/gpu.json"
fi
card=$("$python" "$here/bench/gpu_check.py" card "$work/gpu.json")
context=$("$python" "$here/bench/gpu_check.py" context "$work/gpu.json")
echo "== on the dry dock, --gpu '$card' --context $context"
measure "$plimsoll" drydock --quiet --gpu "$card" --context "$context" -- >"$work/dock.json"
"$python" "$here/bench/gpu_check.py" compare "$work/gpu.json" "$work/dock.json"
