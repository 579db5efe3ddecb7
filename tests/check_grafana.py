#!/usr/bin/env python3
"""Fails when deploy/grafana.json asks for a metric or a label that nothing exports, or is not what scripts/grafana.py writes."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("grafana", root / "scripts/grafana.py")
grafana = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grafana)
written = (root / "deploy/grafana.json").read_text()
problems = [] if written == grafana.text() else ["deploy/grafana.json is old: python3 scripts/grafana.py"]

rows = re.findall(r'^METRIC\(\w+,\s*"([^"]+)",\s*(\w+),\s*"([^"]*)"', (root / "src/base/metrics.def").read_text(), re.M)
metrics = {name: (kind, set(filter(None, labels.split(",")))) for name, kind, labels in rows}
FROM_PROMETHEUS = {"namespace", "pod", "le"}


def queries(o):
    if isinstance(o, dict):
        yield from (o[k] for k in ("expr",) if k in o)
        for v in o.values():
            yield from queries(v)
    elif isinstance(o, list):
        for v in o:
            yield from queries(v)


asked = list(queries(json.loads(written)))
for query in asked:
    names = re.findall(r"\b(?:plimsoll|process)_[a-z0-9_]+", query)
    if not names:
        problems.append(f"asks for nothing of ours: {query}")
    for name in names:
        kind, labels = metrics.get(name.removesuffix("_bucket"), (None, set()))
        if kind is None or name.endswith("_bucket") != kind.startswith("PL_HISTOGRAM"):
            problems.append(f"nothing exports {name}: {query}")
            continue
        for used in re.findall(r"by \(([^)]*)\)", query) + re.findall(r"([a-z_]+)(?==~|!~|=\")", query):
            for label in re.split(r",\s*", used):
                if label not in labels | FROM_PROMETHEUS:
                    problems.append(f"{name} has no label {label}: {query}")
if promtool := shutil.which("promtool"):
    rules = [{"record": f"panel:number{i}", "expr": q.replace("$__rate_interval", "5m")} for i, q in enumerate(asked)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        done = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
    if done.returncode != 0:
        problems.append(done.stdout + done.stderr)
if len(asked) < 20:
    problems.append("hardly any query was found: is this check still right?")
print("\n".join(problems) or f"{len(asked)} queries")
sys.exit(bool(problems))
