#!/usr/bin/env python3
"""Which test shows each demand of docs/requirements.md, and which `make` target runs it.

    scripts/requirements.py [--brief] [ROOT]

Exit status 1 when a demand has no test, a test is not there, or the page's numbering has a gap.
"""

import argparse
import collections
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from named_tests import REFERENCE, tier  # noqa: E402

PAGE = "docs/requirements.md"
ROW = re.compile(r"^\| ([A-Z])(\d+) \| (.*?) \| (.*) \|$")
PARTS = {"A": 14, "B": 9, "C": 12}  # how many demands each part has: a row that is lost is noticed


def demands(root):
    """(code, sentence, [reference]) in the order of the page."""
    for line in (root / PAGE).read_text().splitlines():
        if row := ROW.match(line):
            yield row[1] + row[2], row[3], REFERENCE.findall(row[4])


def judge(root):
    """Lines to print, and what is wrong."""
    lines, wrong, seen, count = [], [], collections.Counter(), 0
    for code, sentence, references in demands(root):
        seen[code] += 1
        lines.append(f"{code:4} {sentence.replace('`', '')}")
        if not references:
            lines.append("     MISSING    no test shows it")
            wrong.append(f"{code}: no test shows it")
        for reference in references:
            where = tier(root, reference)
            count += where is not None
            lines.append(f"     {where or 'NOT THERE':10} {reference}")
            if where is None:
                wrong.append(f"{code}: there is no {reference}")
    for part, last in PARTS.items():
        for number in range(1, last + 1):
            if seen[f"{part}{number}"] != 1:
                wrong.append(f"{part}{number}: {seen[f'{part}{number}']} rows of {PAGE} have this number")
    return lines, wrong, f"{len(seen)} demands, {count} times a test is named"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("root", nargs="?", type=Path, default=ROOT)
    args.add_argument("--brief", action="store_true", help="only what is wrong")
    args = args.parse_args()
    lines, wrong, summary = judge(args.root)
    for line in [*([] if args.brief else lines), *wrong]:
        print(line)
    print(f"{summary}; {len(wrong)} wrong" if wrong else f"{summary}; all there")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
