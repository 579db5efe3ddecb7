#!/usr/bin/env python3
"""Fails when a file includes a room that its own room does not name in CMakeLists.txt, or when the rooms form a cycle."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
uses = {}
for name, rest in re.findall(r"^pl_room\((\w+)\s+USES([^)]*)\)", (root / "CMakeLists.txt").read_text(), re.M):
    uses[name] = rest.split("EXTERNAL")[0].split()


def reach(room, seen=()):
    """Every room reachable through USES; a cycle is an error."""
    if room in seen:
        sys.exit(f"cycle: {' -> '.join([*seen, room])}")
    return {room}.union(*(reach(m, (*seen, room)) for m in uses[room]))


bad = []
order = list(uses)
for room in uses:
    reach(room)
    for neighbour in uses[room]:
        if order.index(neighbour) > order.index(room):
            bad.append(f"CMakeLists.txt: {room} uses {neighbour}, which comes later in the order")
    allowed = {room, *uses[room]}
    for path in sorted((root / "src" / room).rglob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"(\w+)/', line)
            if m and m.group(1) in uses and m.group(1) not in allowed:
                bad.append(f"{path.relative_to(root)}:{number}: {room} may not include {m.group(1)}")
print("\n".join(bad) or f"{len(uses)} rooms, layers hold")
sys.exit(bool(bad))
