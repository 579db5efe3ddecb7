#!/usr/bin/env bash
# Serves examples/digits with a release build of this clone. Arguments go to `plimsoll serve`.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS
scripts/setup.sh run
scripts/build.sh release -DBUILD_TESTING=OFF
. scripts/env.sh

echo "set up and built in $((SECONDS - began)) s; serving examples/digits, end with Ctrl-C"
plimsoll=$PWD/build/release/bin/plimsoll
cd examples/digits
export BENTOML_HOME=$PL_DIGITS_HOME BENTOML_DO_NOT_TRACK=True
exec "$plimsoll" serve --python "$PL_SERVE_ENV/bin/python" "$@"
