#!/usr/bin/env bash
# Usage: build.sh PRESET [cmake options]. Configures build/PRESET when that is needed, then builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
. scripts/env.sh

# CMake remembers where it found things: start afresh when the clone, the library or the compiler is another one.
stamp="$PWD $PL_LLHTTP_DIR $PL_LLAMA_DIR ${CC:-} $*"
if [[ ! -e build/$preset/build.ninja || $(cat "build/$preset/.made-for" 2>/dev/null) != "$stamp" ]]; then
    mkdir -p "build/$preset"
    cmake --fresh --preset "$preset" "$@" >"build/$preset/configure.log" 2>&1 ||
        { cat "build/$preset/configure.log" >&2; exit 1; }
    echo "$stamp" >"build/$preset/.made-for"
fi
# Two jobs a core would only fight for memory under the sanitizers.
cmake --build "build/$preset" -j "${JOBS:-$(nproc)}"
