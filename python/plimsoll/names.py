"""From objects and paths to words that a person finds in the source. Reads files, imports nothing of the user's.

Values never become words: only names of modules, classes, attributes, globals, functions and files do. A dictionary's
key may be a person's data, so that only those of attribute and global dictionaries are named.
"""

import ast
import os
import sysconfig

OWN_FOLDER = os.path.dirname(os.path.realpath(__file__)) + os.sep
LIBRARY_FOLDERS = tuple(
    {
        os.path.realpath(path) + os.sep
        for key, path in sysconfig.get_paths().items()
        if key in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    | {os.path.realpath(os.path.dirname(os.__file__)) + os.sep}
)
PACKAGE_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
MUTATORS = frozenset(
    ("append", "appendleft", "add", "extend", "insert", "setdefault", "put", "put_nowait", "update", "push")
)
TEXT_CHARS = 200  # of one field of a report
SOURCE_BYTES = 4 << 20
GROWERS = 5

_user_files = {}


def is_user_file(path):
    """Neither the standard library, an installed package, generated code, nor ours."""
    if not path or path.startswith("<"):
        return False
    known = _user_files.get(path)
    if known is None:
        real = os.path.realpath(path)
        known = not real.startswith(LIBRARY_FOLDERS) and not real.startswith(OWN_FOLDER)
        known = known and not any(folder in real for folder in PACKAGE_FOLDERS)
        _user_files[path] = known
    return known


def is_own_file(path):
    return bool(path) and os.path.realpath(path).startswith(OWN_FOLDER)


def base(path):
    return os.path.basename(path) if path else "?"


def capped(text):
    return str(text)[:TEXT_CHARS]


def user_line(frames):
    """(file, line, function) of the innermost frame in user code of an allocator's stack, or None."""
    for frame in frames:
        if is_user_file(frame.get("filename")):
            return frame["filename"], frame["line"], frame["name"]
    return None


def assign_targets(node):
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return [node.target]
    return []


def refers(node, name, is_attr):
    """The expression is `name`, or something of it: name[k], name.x, name.get(); with is_attr ….name and of that."""
    while True:
        if is_attr and isinstance(node, ast.Attribute) and node.attr == name:
            return True
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return not is_attr and isinstance(node, ast.Name) and node.id == name


class Source:
    """Where a name is defined, and which lines make it grow. `code`: lines may be shown."""

    def __init__(self, code=True):
        self._code = code
        self._trees = {}

    def _tree(self, path):
        if path not in self._trees:
            try:
                with open(path, encoding="utf-8") as handle:
                    text = handle.read(SOURCE_BYTES)
                self._trees[path] = (ast.parse(text), text.splitlines())
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                self._trees[path] = (None, [])
        return self._trees[path]

    def definition(self, path, name, class_name=None):
        """Line of `name = …` at module level, in the class body, or of `self.name = …` inside the class."""
        tree, _ = self._tree(path)
        if tree is None:
            return None
        scope = tree.body
        if class_name:
            scope = []
            for node in ast.walk(tree):
                if not isinstance(node, ast.ClassDef) or node.name != class_name:
                    continue
                scope = node.body
                for inner in ast.walk(node):
                    for target in assign_targets(inner):
                        if isinstance(target, ast.Attribute) and target.attr == name:
                            return inner.lineno
        for node in scope:
            for target in assign_targets(node):
                if isinstance(target, ast.Name) and target.id == name:
                    return node.lineno
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
                return node.lineno
        return None

    def growers(self, path, name, is_attr):
        """Lines of functions that add to `name`: name.append(…), name[k] = …, name += …"""
        tree, lines = self._tree(path)
        found = {}
        if tree is None:
            return []
        for func in ast.walk(tree):
            if not isinstance(func, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            called = getattr(func, "name", "<lambda>")
            for node in ast.walk(func):
                if not self._grows(node, name, is_attr) or node.lineno in found:
                    continue
                if called == "__init__" and not isinstance(node, ast.Call):
                    continue  # the first value, not growth
                entry = {"file": base(path), "line": node.lineno, "func": capped(called)}
                if self._code and node.lineno <= len(lines):
                    entry["code"] = capped(lines[node.lineno - 1].strip())
                found[node.lineno] = entry
        return [found[line] for line in sorted(found)][:GROWERS]

    @staticmethod
    def _grows(node, name, is_attr):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in MUTATORS and refers(node.func.value, name, is_attr)
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            return False
        for target in assign_targets(node):
            if not refers(target, name, is_attr):
                continue
            if isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign):
                return True
            if any(refers(part, name, is_attr) for part in ast.walk(node.value)):
                return True
        return False
