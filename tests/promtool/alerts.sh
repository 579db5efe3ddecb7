#!/bin/sh
# Prometheus' own tool reads our alerts and runs their tests, and every metric they name is one of ours.
# usage: alerts.sh SOURCES   77: there is no promtool here
command -v promtool >/dev/null || exit 77
# Named by alerts, and exported once the part that measures them is there.
later="plimsoll_memory_peak_bytes plimsoll_memory_limit_bytes plimsoll_memory_forecast_seconds plimsoll_memory_verdict
plimsoll_allocator_retries_total plimsoll_plan_drift_ratio"
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cp "$1/deploy/alerts.yaml" "$1/tests/promtool/alerts.test.yaml" "$work"
cd "$work" || exit 1
promtool check rules alerts.yaml && promtool test rules alerts.test.yaml || exit 1
status=0
for name in $(grep -oE 'plimsoll_[a-z0-9_]+' alerts.yaml | sed 's/_bucket$//' | sort -u); do
    grep -q "\"$name\"" "$1/src/base/metrics.def" && continue
    case " $(echo $later) " in *" $name "*) continue ;; esac
    echo "deploy/alerts.yaml names $name, which nothing exports" && status=1
done
exit $status
