#!/usr/bin/env python3
"""Fails when the sources and the tables of names disagree: an event that is logged and not in events.def, one that is listed
and never logged, a metric of metrics.def that nothing counts. (A metric that is not listed does not compile.)"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]) / "src"
sources = {path: path.read_text() for path in sorted(root.rglob("*.[ch]"))}
CALL = re.compile(r"\bpl_log(?:_emit(?:_as)?)?\s*\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
NOISE = re.compile(r'''"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)+'|/\*.*?\*/|//[^\n]*''', re.S)


def quiet(text):
    """Comments and characters become blanks of the same size: strings stay, and so do line numbers."""
    return NOISE.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def arguments(text, at):
    """The arguments of the call whose opening parenthesis is just before `at`."""
    out, depth, start, i = [], 0, at, at
    while i < len(text):
        if m := STRING.match(text, i):
            i = m.end()
            continue
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and text[i] == ","):
            out.append(text[start:i])
            start = i + 1
        if depth < 0:
            return out
        i += 1
    return out


listed = re.findall(r'^EVENT\("([^"]+)"', (root / "base/events.def").read_text(), re.M)
metrics = re.findall(r"^METRIC\((\w+)", (root / "base/metrics.def").read_text(), re.M)
bad = [f"src/base/events.def: {name} is listed twice" for name in sorted(set(listed)) if listed.count(name) > 1]
literals, counted, calls = set(), set(), 0
for path, text in sources.items():
    text = quiet(text)
    literals.update(STRING.findall(text))
    counted.update(re.findall(r"\bPL_M_(\w+)", text))
    for call in CALL.finditer(text):
        args = arguments(text, call.end())
        # the event is the third argument (pl_log_emit_as: the fourth); a choice between two names is two strings
        event = args[3 if "_as" in call[0] else 2] if len(args) > 3 else ""
        calls += 1
        for name in STRING.findall(event):
            if name not in listed:
                line = text.count("\n", 0, call.start()) + 1
                bad.append(f"src/{path.relative_to(root)}:{line}: event {name} is not in events.def")
bad += [f"src/base/events.def: {name} is never logged" for name in listed if name not in literals]
bad += [f"src/base/metrics.def: nothing counts {name}" for name in metrics if name not in counted]
print("\n".join(bad) or f"{len(listed)} events in {calls} calls, {len(metrics)} metrics: tables and sources agree")
sys.exit(bool(bad))
