#!/usr/bin/env bash
# Formatting and Python findings fail; clang-tidy only advises. With --fix the first two are put right in place.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
mapfile -t c_files < <(find src include tests -name '*.[ch]' | sort)
ruff=$PL_TEST_ENV/bin/ruff
if [[ ${1:-} == --fix ]]; then
    clang-format -i "${c_files[@]}" && "$ruff" check --fix . && exit 0
    exit 1
fi
status=0
clang-format --dry-run --Werror "${c_files[@]}" || status=1
"$ruff" check . || status=1
scripts/build.sh dev >/dev/null || exit 1
find src -name '*.c' -print0 | sort -z | xargs -0 -P "$(nproc)" -n 4 clang-tidy -p build/dev --quiet 2>/dev/null || true
exit $status
