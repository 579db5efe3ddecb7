"""Tests that documents name: whether they are there, and which `make` target runs them.

A reference is what stands in a document: `e2e/test_x.py::test_y`, `python/test_x.py::test_y`, `unit/ROOM/test_x.c::name`,
`fuzz/fuzz_x.c`, or `ctest::NAME` for a test of CMakeLists.txt that is a program of its own.
"""

import ast
import re
from pathlib import Path

REFERENCE = re.compile(r"`((?:e2e|unit|fuzz|python|ctest)(?:/|::)[^`]+)`")
FULL = "pytest.mark.full"


def marks_of(node):
    """Names of what decorates a function, or of what a module sets as `pytestmark`, with what stands inside the brackets."""
    values = node.decorator_list if isinstance(node, ast.FunctionDef) else [node.value]
    flat = [v for value in values for v in (value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value])]
    return [ast.unparse(v.func if isinstance(v, ast.Call) else v) for v in flat]


def tier_of_python(path, name):
    """None when pytest would not collect it."""
    if not path.name.startswith("test_") or not name.startswith("test_"):
        return None
    module = ast.parse(path.read_text())
    marks = [
        m
        for n in module.body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"
        for m in marks_of(n)
    ]
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return "test-full" if FULL in marks + marks_of(node) else "test"
    return None


def tier_of_c(root, path, name):
    """Its file is built when its folder is a room, or an engine's CMakeLists.txt names it; the test is defined and run."""
    room = re.search(rf"^\s*pl_room\({re.escape(path.parent.name)}\b", (root / "CMakeLists.txt").read_text(), re.M)
    elsewhere = any(path.name in cmake.read_text() or path.parent.name in cmake.read_text()
                    for cmake in root.glob("engines/*/CMakeLists.txt"))  # fmt: skip
    if not path.name.startswith("test_") or not (room or elsewhere):
        return None
    text = path.read_text()
    defined = re.search(rf"\b[A-Z]+\({re.escape(name)}\b", text)
    return "test" if defined and len(re.findall(rf"\b{re.escape(name)}\b", text)) > 1 else None


def tier(root, reference):
    """ "test" or "test-full": what runs it (`make test-full` runs everything). None: there is no such test."""
    root = Path(root)
    file, _, name = reference.partition("::")
    if file == "ctest":
        return (
            "test" if re.search(rf"add_test\(NAME {re.escape(name)} ", (root / "CMakeLists.txt").read_text()) else None
        )
    path = root / "tests" / file
    if not path.is_file():
        return None
    if file.startswith("fuzz/"):
        there = not name and (root / "tests/fuzz/corpus" / path.stem.removeprefix("fuzz_")).is_dir()
        return "test" if there else None
    return tier_of_python(path, name) if path.suffix == ".py" else tier_of_c(root, path, name)
