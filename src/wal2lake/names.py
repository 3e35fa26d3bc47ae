"""A table's or column's name as one text, ``schema.table``, and never the same text for two of them.

A part that has a dot or a double quote in it stands in double quotes, as in SQL; any other is as the catalog has it,
so ``shop.Orders`` needs none. Whoever may create a table chooses its name, line breaks and a terminal's control
sequences included: a part that has such stands as U&"…", as in SQL too, so that what people read, copy and send back
is that name and no other. Other texts that people read go through ``printable``.

Source: PostgreSQL documentation, "Lexical Structure" (Identifiers with Unicode Escapes).
"""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, what turns the direction of writing, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PART = re.compile(r'(?:U&)?"(?:[^"]|"")+"|[^".]+')
_ESCAPE = re.compile(r"\\(?:(\\)|\+([0-9A-Fa-f]{6})|([0-9A-Fa-f]{4})|)")


def qualified(*parts: str) -> str:
    """The parts with dots between: ``qualified("a.b", "c")`` is ``"a.b".c``."""
    return ".".join(map(_part, parts))


def split_qualified(text: str) -> tuple[str, ...]:
    """The parts of what ``qualified`` made, or a user wrote; () if it is no such text."""
    parts = _PART.findall(text)
    if ".".join(parts) != text:
        return ()
    try:
        return tuple(map(_name, parts))
    except ValueError:  # an escape that is none
        return ()


def quoted(name: str) -> str:
    """``name`` in double quotes, as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def printable(text: str) -> str:
    """``text`` on one line, without what makes a terminal act or readers see another order: those as escapes."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def quoted_printable(name: str) -> str:
    """``name`` as SQL has it, quoted: as U&"…" where it has what ``printable`` would change."""
    if not _UNPRINTABLE.search(name):
        return quoted(name)
    doubled = name.replace("\\", "\\\\")
    return "U&" + quoted(_UNPRINTABLE.sub(lambda found: f"\\+{ord(found[0]):06X}", doubled))


def _part(name: str) -> str:
    plain = name and not ("." in name or '"' in name or _UNPRINTABLE.search(name))
    return name if plain else quoted_printable(name)


def _name(part: str) -> str:
    """Raises ValueError for an escape that is none."""
    if part[-1] != '"':
        return part
    inner = part[part.index('"') + 1 : -1].replace('""', '"')
    if part[0] == '"':
        return inner
    return _ESCAPE.sub(lambda found: found[1] or chr(int(found[2] or found[3] or "", 16)), inner)
