"""python -m plimsoll.lint [--stdin-name FILE] PATH...     prints one JSON document; the verb `plimsoll lint` shows it.

A bentofile is listed with what its service's file says (`facts`) and judged by the verb, which reads YAML.
"""

import io
import json
import os
import re
import sys
import tokenize
import traceback

from plimsoll.lint.judge import facts, judge
from plimsoll.lint.rules import RULES
from plimsoll.lint.source import Source, ignored_lines

FILE_BYTES = 2 * 1024 * 1024
MOST_FILES = 10000
LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)  # UnicodeDecodeError is a ValueError
SERVICE_LINE = re.compile(r"^service\s*:\s*[\"']?([\w./\\-]+?)(?:\.py)?:\w+", re.M)


def files(path):
    """The files of a folder that lint looks at, in order; a file that is named is always looked at."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if f not in LEFT_OUT and not f.startswith("."))
        folders[:] = [f for f in folders if not os.path.exists(os.path.join(folder, f, "pyvenv.cfg"))]
        for name in sorted(names):
            if name.endswith(".py") or name in ("bentofile.yaml", "bentofile.yml"):
                yield os.path.join(folder, name)


def read(path):
    with open(path, "rb") as handle:
        data = handle.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise OSError(f"over {FILE_BYTES} bytes")
    return data


def as_text(data):
    """As Python reads a source file: its coding line, else UTF-8."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()


def row(finding):
    return {"rule": finding.rule, "line": finding.line, "col": finding.col, "text": finding.text}


def cannot_parse(error):
    line, col = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
    said = getattr(error, "msg", None) or str(error)
    if isinstance(error, (RecursionError, MemoryError)):
        said = "nested too deeply"
    return {"rule": "PL033", "line": line, "col": max(col, 1), "text": said}


def one_source(path, data):
    entry = {"path": path, "kind": "python", "findings": [], "silenced": []}
    try:
        source = Source(path, as_text(data))
    except UNPARSED as error:
        entry["findings"] = [cannot_parse(error)]
        return entry
    found, silenced = judge(source)
    entry["findings"] = [row(f) for f in found]
    entry["silenced"] = [row(f) for f in silenced]
    return entry


def one_bentofile(path, data):
    text = data.decode("utf-8", "replace")
    entry = {"path": path, "kind": "bentofile", "ignored": {}}
    for line, rules in ignored_comments(text).items():
        entry["ignored"][str(line)] = sorted(rules)
    found = SERVICE_LINE.search(text)
    if found:
        name = found.group(1).replace(".", "/") if "/" not in found.group(1) else found.group(1)
        at = os.path.join(os.path.dirname(path), name + ".py")
        try:
            entry["facts"] = facts(Source(at, as_text(read(at))))
        except (OSError, *UNPARSED):
            pass
    return entry


def ignored_comments(text):
    out = {}
    for number, line in enumerate(text.splitlines(), 1):
        at = line.find("#")
        if at >= 0:
            for rules in ignored_lines(line[at:] + "\n").values():
                out[number] = rules
    return out


def main(words):
    name = None
    if words[:1] == ["--rules"]:
        print(json.dumps({"rules": [r._asdict() for r in RULES]}))
        return 0
    if words[:1] == ["--stdin-name"]:
        name, words = words[1], words[2:]
    out, refused = [], []
    todo = [name] if name is not None else [f for path in words for f in files(path)]
    for path in todo[:MOST_FILES]:
        try:
            data = sys.stdin.buffer.read(FILE_BYTES + 1) if name is not None else read(path)
        except OSError as error:
            refused.append({"path": path, "why": error.strerror or str(error)})
            continue
        is_yaml = path.endswith((".yaml", ".yml"))
        try:
            out.append(one_bentofile(path, data) if is_yaml else one_source(path, data))
        except Exception as error:  # a mistake of ours: the other files are judged, and this one is said not to be
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            why = f"lint could not judge it: {type(error).__name__} at {place}"
            refused.append({"path": path, "why": why, "unjudged": True})
    if len(todo) > MOST_FILES:
        refused.append({"path": words[0], "why": f"over {MOST_FILES} files"})
    rules = {r.id: {"level": r.level, "title": r.title, "fix": r.fix} for r in RULES}
    print(json.dumps({"files": out, "refused": refused, "rules": rules}))
    return 0


if __name__ == "__main__":
    sys.setrecursionlimit(4000)
    sys.exit(main(sys.argv[1:]))
