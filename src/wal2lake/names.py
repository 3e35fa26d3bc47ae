"""A table's or column's name as one text, ``schema.table``, and never the same text for two of them.

A part that has a dot or a double quote in it stands in double quotes, as in SQL; any other is as the catalog has it,
so ``shop.Orders`` needs none. Whoever may create a table chooses its name, line breaks and a terminal's control
sequences included: what people read goes through ``printable``, and nothing else does.
"""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, what turns the direction of writing, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
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


def printable(text: str) -> str:
    """``text`` on one line, without what makes a terminal act or readers see another order: those as escapes."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def _part(name: str) -> str:
    return quoted(name) if "." in name or '"' in name or not name else name
