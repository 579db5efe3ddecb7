#!/usr/bin/env python3
"""Fails when docs/threat-model.md claims something without naming a test, or names one that is not there."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "docs/threat-model.md").read_text().splitlines()
bad, claims, names = [], 0, set()


def exists(reference):
    file, _, name = reference.partition("::")
    path = root / "tests" / file
    if not path.is_file():
        return False
    if not name:
        return file.startswith("fuzz/") and (root / "tests/fuzz/corpus" / path.stem.removeprefix("fuzz_")).is_dir()
    text = path.read_text()
    if file.endswith(".py"):
        return re.search(rf"^def {re.escape(name)}\(", text, re.M) is not None
    # defined, and run
    return f"TEST({name})" in text and len(re.findall(rf"\b{re.escape(name)}\b", text)) > 1


for number, line in enumerate(page, 1):
    if not line.startswith("| ") or line.endswith(("| test |", "|---|")):
        continue
    claims += 1
    references = re.findall(r"`((?:e2e|unit|fuzz|python)/[^`]+)`", line)
    if not references:
        bad.append(f"docs/threat-model.md:{number}: no test is named")
    for reference in references:
        names.add(reference)
        if not exists(reference):
            bad.append(f"docs/threat-model.md:{number}: there is no {reference}")
if claims < 20:
    bad.append("docs/threat-model.md: hardly a claim in it: has its form changed?")
print("\n".join(bad) or f"{claims} claims, {len(names)} tests: all there")
sys.exit(bool(bad))
