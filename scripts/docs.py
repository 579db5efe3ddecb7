#!/usr/bin/env python3
"""Makes out of the tables in the sources: docs/reference/*.md, docs/plimsoll.schema.json, and by manual.py the manual
pages and completions.

    scripts/docs.py BUILD            writes them
    scripts/docs.py BUILD --check    names those that are not what the tables say; exit status 1 if there are any

BUILD is a build folder: settings come out of its `plimsoll config reference` and `config schema`.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import manual

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
STRING = r'"((?:[^"\\]|\\.)*)"'


def rows(path, macro):
    """The arguments of every MACRO(...) line of a table, strings without their quotes."""
    text = (ROOT / "src" / path).read_text()
    for line in re.findall(rf"^{macro}\((.*)\)\s*$", text, re.M):
        cells = re.findall(rf"{STRING}|([^,\s][^,]*)", line)
        yield [(a or b).strip().replace('\\"', '"') for a, b in cells]


def table(head, lines):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    out += ["| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines]
    return "\n".join(out) + "\n"


def metrics():
    kinds = {"PL_COUNTER": "counter", "PL_GAUGE": "gauge", "PL_HISTOGRAM_SECONDS": "histogram, s",
             "PL_HISTOGRAM_BYTES": "histogram, bytes"}
    lines = [(f"`{name}`", kinds[kind], labels.replace(",", ", "), text)
             for _, name, kind, labels, text in rows("base/metrics.def", "METRIC")]
    return ("# Metrics\n\nText format 0.0.4 on `/metrics` of the data and the admin port, followed by the workers' own "
            "families with a label `worker`.\nMade from `src/base/metrics.def`.\n\n"
            + table(["name", "type", "labels", "meaning"], lines))


def events():
    lines = [(f"`{name}`", level.removeprefix("PL_").lower(), fields)
             for name, level, fields in rows("base/events.def", "EVENT")]
    return ("# Events\n\nOne line each on stderr and in `plimsoll events`. Beside their own fields they carry, where "
            "it applies, `ts level event\nservice worker generation`. Names are stable.\nMade from "
            "`src/base/events.def`.\n\n"
            + table(["event", "level", "fields"], lines))


def reasons():
    lines = [(f"`{name}`", status, f"`{code}`" if code else "", f"`{dropped}`" if dropped else "",
              "our load" if owner == "LOAD" else "the request's own fault")
             for _, name, status, code, dropped, owner in rows("base/reasons.def", "REASON")]
    causes = [(f"`{name}`", text) for _, name, text in rows("worker/causes.def", "CAUSE")]
    return ("# Reasons and causes\n\n## Why a request was not served\n\nIn `x-plimsoll-reason`, in logs and in labels. "
            "Made from `src/base/reasons.def`.\n\n"
            + table(["reason", "status", "code in the body", "x-llm-d-request-dropped-reason", "whose doing"], lines)
            + "\n## Why a worker died\n\nIn `worker.death`, in `x-plimsoll-reason` of a 502 and in labels. Made from "
            "`src/worker/causes.def`.\n\n" + table(["cause", "meaning"], causes))


def lint_rules():
    from plimsoll.lint.rules import PRELUDE, RULES, SERVICE

    out = ("# Rules of `plimsoll lint`\n\nMade from `python/plimsoll/lint/rules.py`; each example is a test. "
           "[lint.md](../lint.md) tells how to use it.\n\n"
           + table(["id", "level", "meaning"], [(f"[{r.id}](#{r.id.lower()})", r.level, r.title) for r in RULES])
           + "\nExamples begin with these lines, and those that are no whole class stand in this one:\n\n```python\n"
           + PRELUDE.rstrip() + "\n\n" + SERVICE.rstrip() + "\n```\n")
    for r in RULES:
        language = "yaml" if r.title.startswith("bentofile") else "python"
        out += (f"\n## {r.id}\n\n**{r.title}** ({r.level}). {r.why}\n\n*Instead*: {r.fix}\n\n"
                f"Found:\n\n```{language}\n{r.bad}```\n\nNot found:\n\n```{language}\n{r.good}```\n")
    return out


def manifest_rules():
    lines = [(i, severity.lower(), text[0].upper() + text[1:], remedy)
             for i, severity, text, remedy in rows("ship/kube_rules.def", "KUBE")]
    return ("# Rules of `plimsoll manifest --check`\n\nMade from `src/ship/kube_rules.def`. "
            "[manifest.md](../manifest.md) tells how to use it.\n\n"
            + table(["id", "severity", "finding", "instead"], lines))


def pages(build):
    plimsoll = pathlib.Path(build) / "bin/plimsoll"

    def said(*words):
        return subprocess.run([plimsoll, *words], check=True, capture_output=True, text=True).stdout

    return {
        **manual.pages(said("help", "--json"), said("config", "reference")),
        "docs/reference/settings.md": said("config", "reference"),
        "docs/plimsoll.schema.json": said("config", "schema"),
        "docs/reference/metrics.md": metrics(),
        "docs/reference/events.md": events(),
        "docs/reference/reasons.md": reasons(),
        "docs/reference/rules.md": lint_rules(),
        "docs/reference/manifest-rules.md": manifest_rules(),
    }


def main():
    args = argparse.ArgumentParser()
    args.add_argument("build")
    args.add_argument("--check", action="store_true")
    args = args.parse_args()
    stale = []
    for name, text in pages(args.build).items():
        path = ROOT / name
        if args.check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        print("not what the tables say (make docs):", *stale, sep="\n  ")
    sys.exit(bool(stale))


if __name__ == "__main__":
    main()
