#!/usr/bin/env python3
"""Fails when the tree loses its shape: no file of 1,000 lines, and 99 of 100 functions shorter than 100 lines.

C functions are measured as clang-format leaves them, from the line at the margin that ends in ` {` to the `}` at the
margin; Python's by its own parser. usage: check_shape.py ROOT"""
import ast
import pathlib
import re
import sys

FILE_LINES, FUNCTION_LINES, SHARE = 1000, 100, 0.99
FOLDERS = ("src", "include", "engines", "drydock", "dashboard", "python", "scripts", "bench", "tests")
KINDS = {".c", ".h", ".def", ".py", ".js", ".css", ".html", ".sh", ".cmake"}


def c_functions(text):
    """(name, lines) of every function: its head may be folded, and begins at the margin."""
    head, begin, lines = None, 0, text.splitlines()
    for number, line in enumerate(lines, 1):
        if line == "}" and head is not None:
            yield head, number - begin + 1
            head = None
        elif head is None and re.match(r"[A-Za-z_]", line) and not line.startswith(("typedef", "#", "enum {")):
            begin = number
        if head is None and line.endswith(") {") and not line.startswith(("}", "#")):
            before = "\n".join(lines[begin - 1:number])
            named = re.search(r"(\w+)\s*\(", before)
            # an initialiser is no function; a test of cmocka's kind is
            if begin and named and "=" not in before.split("(")[0]:
                head = named.group(1)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1


def main(root):
    long_files, functions = [], []
    files = [p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in KINDS and "tests/data" not in p.as_posix()]
    for path in files:
        text, name = path.read_text(), path.relative_to(root)
        lines = text.count("\n")
        if lines >= FILE_LINES:
            long_files.append(f"{name}: {lines} lines: look for the second idea in it")
        measure = {".c": c_functions, ".h": c_functions, ".py": python_functions}.get(path.suffix)
        functions += [(count, f"{name}: {function}") for function, count in measure(text)] if measure else []
    functions.sort(reverse=True)
    long = [f"{name}: {count} lines" for count, name in functions if count >= FUNCTION_LINES]
    share = 1 - len(long) / len(functions)
    bad = long_files + (long if share < SHARE else [])
    print("\n".join(bad))
    print(f"{len(files)} files, {len(functions)} functions, {100 * share:.2f} % shorter than {FUNCTION_LINES} lines; the longest: "
          + ", ".join(f"{name} ({count})" for count, name in functions[:3]))
    # a measure that finds nothing would pass for ever
    return bool(bad) or len(functions) < 1000


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
