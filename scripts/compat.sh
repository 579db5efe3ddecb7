#!/usr/bin/env bash
# Usage: compat.sh [VERSION...]. Serves examples/digits with other versions of BentoML: an environment for each in the cache
# folder, its own model, one request by JSON and one by picture, a restart, and the last lines of the log where something
# is wrong. Prints a row of Markdown for each; exit status 1 when one does not serve. docs/compat.md has the table.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
[[ $# -gt 0 ]] || set -- 1.4.0 1.4.20 1.4.40
plimsoll=${PLIMSOLL_BUILD:-$PWD/build/dev}/bin/plimsoll
[[ -x $plimsoll ]] || { echo "compat: $plimsoll is not there; scripts/build.sh dev makes it" >&2; exit 2; }
status=0

# The newest of everything else that this version of BentoML accepts.
environment() {
    local at=$1 version=$2
    [[ ! -e $at/.made ]] || return 0
    rm -rf "$at"
    "$PL_PYTHON" -m venv "$at"
    "$at/bin/pip" --quiet --disable-pip-version-check install "bentoml==$version" scikit-learn joblib pillow || return 1
    (cd examples/digits && BENTOML_HOME=$at/home BENTOML_DO_NOT_TRACK=True "$at/bin/python" train.py >"$at/train.log" 2>&1) ||
        { tail -3 "$at/train.log" >&2; return 1; }
    touch "$at/.made"
}

ask() { # a route, and what curl is to send
    curl --silent --show-error --max-time 60 --output "$run/answer" --write-out '%{http_code}' --unix-socket "$run/data.sock" "http://localhost/$1" "${@:2}"
}

serve() {
    local at=$1
    run=$(mktemp -d)
    (cd examples/digits && BENTOML_HOME=$at/home BENTOML_DO_NOT_TRACK=True exec "$plimsoll" serve --python "$at/bin/python" \
        --listen "unix:$run/data.sock" --admin none --run_dir "$run/r" --state_dir "$run/s" --logs.format json --backoff.attempts 1 --failed_exit 1s) >"$run/log" 2>&1 &
    local server=$!
    for ((i = 0; i < 600; i++)); do
        [[ ! -S $run/data.sock || $(ask readyz 2>/dev/null) != 200 ]] || break
        kill -0 $server 2>/dev/null || break
        sleep 0.2
    done
    json=$(ask predict --header 'Content-Type: application/json' --data @examples/digits/samples/three.json 2>/dev/null) || json=none
    picture=$(ask predict_png --form "image=@examples/digits/samples/three.png" 2>/dev/null) || picture=none
    restart=no
    "$plimsoll" restart digits --admin "$run/r/admin.sock" >/dev/null 2>"$run/restart" && restart=yes
    degraded=$(grep '"worker.degraded"' "$run/log" | grep -o '"feature":"[a-z_]*"' | cut -d'"' -f4 | sort -u | paste -sd' ') || true
    [[ $json == 200 && $picture == 200 && $restart == yes ]] || { status=1; tail -n 15 "$run/log" >&2; cat "$run/restart" >&2; }
    kill -TERM $server 2>/dev/null || true
    wait $server || { echo "compat: the server ended with status $?" >&2; status=1; }
    rm -rf "$run"
}

echo "| BentoML | Python | JSON | picture | restart | degraded |"
echo "|---|---|---|---|---|---|"
for version; do
    at=$PL_CACHE/compat-$version-$(echo "$pl_python" | pl_hash examples/digits/train.py -)
    if ! environment "$at" "$version"; then
        echo "| $version | ${pl_python%% *} | does not install | | | |"
        status=1
        continue
    fi
    serve "$at"
    echo "| $version | ${pl_python%% *} | $json | $picture | $restart | ${degraded:-none} |"
done
exit $status
