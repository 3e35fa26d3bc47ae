"""Tests reach what they test by public names. Ruff sees `module._name` (SLF001); here are imports and texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
BY_TEXT = {"setattr", "getattr", "delattr", "patch"}
PRIVATE = re.compile(r"(^|[.:])_(?!_)\w+$")  # what a patch by name reaches: "_NAME", "module._NAME"


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """The private names that a test imports, or gets or replaces by their text, each with its line."""
    for node in ast.walk(ast.parse(source)):
        texts: list[object] = []
        if isinstance(node, ast.ImportFrom):
            texts = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in BY_TEXT:
            texts = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
        yield from ((node.lineno, text) for text in texts if isinstance(text, str) and PRIVATE.search(text))


def test_no_test_reaches_a_private_name_by_import_or_text() -> None:
    files = sorted(file for file in TESTS.rglob("*.py") if file != Path(__file__))
    found = [f"{file}:{line}: {name}" for file in files for line, name in private_names(file.read_text())]
    assert len(files) > 100
    assert found == []


def test_what_counts_as_private() -> None:
    reaches = """
m.setattr("wal2lake.x._LIMIT", 1)
m.setattr(x, "_LIMIT", 1)
getattr(x, "_limit")
from wal2lake.x import _limit, limit
m.setattr("wal2lake.x.LIMIT", 1)
m.setattr(x, "__class__", y)
m.setenv("_LIMIT", "1")
"""
    assert sorted(line for line, _ in private_names(reaches)) == [2, 3, 4, 5]
