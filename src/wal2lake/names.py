"""A table's or column's name as one text, ``schema.table``, and never the same text for two of them.

A part that has a dot or a double quote in it stands in double quotes, as in SQL; any other is as the catalog has it,
so ``shop.Orders`` needs none.
"""

from __future__ import annotations

import re

_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')


def qualified(*parts: str) -> str:
    """The parts with dots between: ``qualified("a.b", "c")`` is ``"a.b".c``."""
    return ".".join(map(_part, parts))


def split_qualified(text: str) -> tuple[str, ...]:
    """The parts of what ``qualified`` made, or a user wrote; () if it is no such text."""
    parts = _PART.findall(text)
    if ".".join(parts) != text:
        return ()
    return tuple(part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts)


def quoted(name: str) -> str:
    """``name`` in double quotes, as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _part(name: str) -> str:
    return quoted(name) if "." in name or '"' in name or not name else name
