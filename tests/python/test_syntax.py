"""Plimsoll's Python side runs in the user's interpreter, 3.9 and later: the grammar of 3.9 must take it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python/plimsoll"
FILES = sorted(PACKAGE.rglob("*.py"))


def test_there_is_something_to_read():
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(PACKAGE)) for f in FILES])
def test_the_grammar_of_3_9_takes_it(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        # what feature_version lets pass: `X | Y` in an annotation is evaluated unless annotations are texts
        texts = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            assert texts or not isinstance(note, ast.BinOp), f"{path}:{note.lineno}: a union by | wants 3.10"


def test_the_check_finds_newer_grammar():
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass\n", feature_version=(3, 9))
