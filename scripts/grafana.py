#!/usr/bin/env python3
"""Writes deploy/grafana.json: one row of panels for each question of the dashboard (docs/dashboard.md).

    scripts/grafana.py [FILE]

The panels are the table below, so that a review reads queries and not JSON; tests/check_grafana.py holds the names in them
against metrics.def, and the file against this script.
"""

import json
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "deploy/grafana.json"
POD = 'namespace=~"$namespace",pod=~"$pod"'
SERVICE = f'{POD},service=~"$service"'
RATE = "$__rate_interval"


def rate(metric, by, more=""):
    return f"sum by ({by}) (rate({metric}{{{SERVICE}{more}}}[{RATE}]))"


def quantile(q, metric):
    return f"histogram_quantile({q}, sum by (service, le) (rate({metric}_bucket{{{SERVICE}}}[{RATE}])))"


# (row title, [(panel title, unit, kind, [(query, legend)...], what it answers)])
ROWS = [
    ("Is it warm?", [
        ("Ready", "bool_yes_no", "stat", [(f"min by (pod, service) (plimsoll_ready{{{SERVICE}}})", "{{pod}} {{service}}")],
         "0: a required service has no warm worker, or its proof is stale."),
        ("Warm workers", "none", "timeseries", [(f"sum by (pod, service) (plimsoll_worker_warm{{{SERVICE}}})", "{{pod}} {{service}}")],
         "Workers whose warm-up has passed."),
        ("Last start, by phase", "s", "timeseries", [(f"max by (service, phase) (plimsoll_start_seconds{{{SERVICE}}})", "{{service}} {{phase}}")],
         "Seconds since the spawn until each phase was reached."),
        ("First and settled latency", "s", "timeseries",
         [(f"max by (service) (plimsoll_first_request_seconds{{{SERVICE}}})", "{{service}} first request"),
          (f"max by (service) (plimsoll_warm_latency_seconds{{{SERVICE}}})", "{{service}} settled")], "What a cold caller would have paid."),
    ]),
    ("Is memory growing, where, and until when?", [
        ("The load line", "bytes", "timeseries",
         [(f"sum by (pod, gpu, kind) (plimsoll_gpu_memory_bytes{{{POD}}})", "{{pod}} gpu{{gpu}} {{kind}}")],
         "Each card: total, used, free, and what is not ours."),
        ("Allocated against reserved", "bytes", "timeseries",
         [(f"plimsoll_memory_allocated_bytes{{{SERVICE}}}", "{{pod}} {{service}} {{worker}} gpu{{gpu}} allocated"),
          (f"plimsoll_memory_reserved_bytes{{{SERVICE}}}", "{{pod}} {{service}} {{worker}} gpu{{gpu}} reserved")],
         "Both curves grow: a leak. Only the upper one: cache or fragmentation."),
        ("Verdicts", "none", "timeseries",
         [(f'max by (pod, service, worker, verdict) (plimsoll_memory_verdict{{{SERVICE},verdict!~"stable|warming"}}) == 1',
           "{{pod}} {{service}} {{worker}} {{verdict}}")], "What is said of each worker that is not plain. The holder's line is in the event memory.holder."),
        ("Bytes a request", "bytes", "timeseries",
         [(f'plimsoll_memory_growth_bytes_per_request{{{SERVICE},bound="mid"}}', "{{pod}} {{service}} {{worker}} {{scope}}")],
         "How fast it grows."),
        ("Until out of memory", "s", "timeseries", [(f"plimsoll_memory_forecast_seconds{{{SERVICE}}}", "{{pod}} {{service}} {{worker}} {{scope}}")],
         "Absent while nothing is in sight."),
        ("Host memory of workers", "bytes", "timeseries",
         [(f'plimsoll_host_memory_bytes{{{SERVICE},kind="rss"}}', "{{pod}} {{service}} {{worker}}"),
          (f'plimsoll_cgroup_memory_bytes{{{POD},kind="max"}}', "{{pod}} limit")], "Against the memory limit of the pod."),
    ]),
    ("What was refused, and which limit binds?", [
        ("Refused, by reason", "reqps", "timeseries",
         [(rate("plimsoll_requests_refused_total", "service, reason"), "{{service}} {{reason}}")], "Load or readiness: 429 and 503."),
        ("Rejected, by reason", "reqps", "timeseries",
         [(rate("plimsoll_requests_rejected_total", "service, reason"), "{{service}} {{reason}}")], "The request's own fault: 400, 401, 413, 422."),
        ("Queue", "none", "timeseries", [(f"sum by (pod, service) (plimsoll_queue_requests{{{SERVICE}}})", "{{pod}} {{service}}")],
         "Requests that wait."),
        ("Budget used", "percentunit", "timeseries", [(f"max by (pod, service) (plimsoll_budget_used_ratio{{{SERVICE}}})", "{{pod}} {{service}}")],
         "The fullest device: the signal for scalers."),
        ("Budget, charged and free", "bytes", "timeseries",
         [(f"plimsoll_budget_charged_bytes{{{SERVICE}}}", "{{pod}} {{service}} gpu{{gpu}} charged"),
          (f"plimsoll_budget_free_bytes{{{SERVICE}}}", "{{pod}} {{service}} gpu{{gpu}} free")], "Who uses the budget."),
        ("Requests by key", "reqps", "timeseries",
         [(rate("plimsoll_key_requests_total", "key, service"), "{{key}} {{service}}")], "Who asks."),
    ]),
    ("What died, and what would have been done?", [
        ("Deaths, by cause", "none", "timeseries",
         [(f"sum by (pod, service, cause) (increase(plimsoll_worker_deaths_total{{{SERVICE}}}[{RATE}]))", "{{pod}} {{service}} {{cause}}")],
         "One sentence each: plimsoll report."),
        ("Replacements", "none", "timeseries",
         [(f"sum by (pod, service, reason, mode) (increase(plimsoll_worker_replacements_total{{{SERVICE}}}[{RATE}]))",
           "{{pod}} {{service}} {{reason}} {{mode}}")], "By reason and mode."),
        ("Would have been done", "none", "timeseries",
         [(f"sum by (pod, service, action, reason) (increase(plimsoll_would_total{{{SERVICE}}}[{RATE}]))",
           "{{pod}} {{service}} {{action}} {{reason}}")], "What mode enforce would have done."),
        ("Expected gap", "s", "timeseries", [(f"max by (pod, service) (plimsoll_replacement_gap_seconds{{{SERVICE}}})", "{{pod}} {{service}}")],
         "How long nobody serves at the next replacement."),
        ("Lost requests", "none", "timeseries",
         [(f"sum by (service, cause) (increase(plimsoll_requests_lost_total{{{SERVICE}}}[{RATE}]))", "{{service}} {{cause}}")],
         "In a handler that died."),
        ("GPU errors", "none", "timeseries",
         [(f"sum by (pod, gpu, xid) (increase(plimsoll_gpu_xid_total{{{POD}}}[{RATE}]))", "{{pod}} gpu{{gpu}} Xid {{xid}}")], "Xid errors of the driver."),
    ]),
    ("How fast, and how much?", [
        ("Answers, by status", "reqps", "timeseries", [(rate("plimsoll_requests_total", "service, code"), "{{service}} {{code}}")], "All answers, refusals included."),
        ("Latency", "s", "timeseries",
         [(quantile(q, "plimsoll_request_seconds"), f"{{{{service}}}} p{100 * q:.0f}") for q in (0.5, 0.99)], "Whole requests."),
        ("To the first byte", "s", "timeseries",
         [(quantile(q, "plimsoll_first_byte_seconds"), f"{{{{service}}}} p{100 * q:.0f}") for q in (0.5, 0.99)], "What a reader of a stream waits."),
        ("Wait in the queue", "s", "timeseries", [(quantile(0.99, "plimsoll_queue_wait_seconds"), "{{service}} p99")], "Of those that were let in."),
        ("Tokens", "none", "timeseries",
         [(rate("plimsoll_tokens_total", "service, model, direction"), "{{service}} {{model}} {{direction}}")], "A second."),
        ("The gateway itself", "bytes", "timeseries", [(f"process_resident_memory_bytes{{{POD}}}", "{{pod}} resident")], "Plimsoll's own memory."),
    ]),
]


def panel(number, x, y, title, unit, kind, queries, answers):
    targets = [{"refId": chr(65 + i), "datasource": {"type": "prometheus", "uid": "${datasource}"}, "expr": q, "legendFormat": legend,
                "instant": kind == "stat"} for i, (q, legend) in enumerate(queries)]  # fmt: skip
    return {"id": number, "type": kind, "title": title, "description": answers, "gridPos": {"x": x, "y": y, "w": 8, "h": 8},
            "datasource": {"type": "prometheus", "uid": "${datasource}"}, "targets": targets,
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if kind == "timeseries" else {}}  # fmt: skip


def variable(name, query):
    return {"name": name, "type": "query", "label": name, "query": {"query": query, "refId": "v"}, "includeAll": True, "multi": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}, "refresh": 2, "datasource": {"type": "prometheus", "uid": "${datasource}"}}  # fmt: skip


def dashboard():
    panels, y, number = [], 0, 1
    for title, row in ROWS:
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        number, y = number + 1, y + 1
        for i, one in enumerate(row):
            panels.append(panel(number, 8 * (i % 3), y + 8 * (i // 3), *one))
            number += 1
        y += 8 * ((len(row) + 2) // 3)
    return {"title": "Plimsoll", "uid": "plimsoll", "tags": ["plimsoll", "gpu"], "schemaVersion": 39, "editable": True, "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "panels": panels,
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "datasource", "current": {}},
                variable("namespace", "label_values(plimsoll_ready, namespace)"),
                variable("pod", 'label_values(plimsoll_ready{namespace=~"$namespace"}, pod)'),
                variable("service", 'label_values(plimsoll_ready{namespace=~"$namespace"}, service)')]},
            "annotations": {"list": [
                {"name": "deaths", "enable": True, "iconColor": "red", "datasource": {"type": "prometheus", "uid": "${datasource}"},
                 "expr": f"sum by (pod, service, cause) (increase(plimsoll_worker_deaths_total{{{SERVICE}}}[1m])) > 0",
                 "titleFormat": "{{service}} died", "textFormat": "{{cause}}"}]}}  # fmt: skip


def text():
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else FILE).write_text(text())
