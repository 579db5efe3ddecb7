#!/usr/bin/env python3
"""Fails when docs/threat-model.md claims something without naming a test, or names one that is not there."""

import pathlib
import sys

from named_tests import REFERENCE, tier

root = pathlib.Path(sys.argv[1])
page = (root / "docs/threat-model.md").read_text().splitlines()
bad, claims, names = [], 0, set()

for number, line in enumerate(page, 1):
    if not line.startswith("| ") or line.endswith(("| test |", "|---|")):
        continue
    claims += 1
    references = REFERENCE.findall(line)
    if not references:
        bad.append(f"docs/threat-model.md:{number}: no test is named")
    for reference in references:
        names.add(reference)
        if tier(root, reference) is None:
            bad.append(f"docs/threat-model.md:{number}: there is no {reference}")
if claims < 20:
    bad.append("docs/threat-model.md: hardly a claim in it: has its form changed?")
print("\n".join(bad) or f"{claims} claims, {len(names)} tests: all there")
sys.exit(bool(bad))
