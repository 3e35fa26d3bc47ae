"""What a notebook shows of a result: small tables and lists, in which every text is text.

The rule: names and sentences come from whoever may create a table, so all of it is escaped, here alone. Nothing is
fetched from elsewhere, and no colour says what a word does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from wal2lake.names import printable

_MARKED = ' style="font-weight: bold"'


class _Markup(str):
    """Made here, so not escaped."""

    __slots__ = ()


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, marked: Sequence[bool] = ()) -> str:
    """Rows of texts and bars under ``headings``; those that are ``marked``, by their place, stand out. None is an empty
    cell."""
    head = "".join(f"<th>{text(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr{_MARKED if number < len(marked) and marked[number] else ''}>"
        f"{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if head else f"<table>{body}</table>"


def bullets(items: Iterable[object]) -> str:
    """A list; nothing where there are no items."""
    body = "".join(f"<li>{text(item)}</li>" for item in items)
    return f"<ul>{body}</ul>" if body else ""


def bar(share: float) -> str:
    """A bar that is full where ``share`` is 1, and says so in words where none is drawn."""
    percent = f"{share * 100:.0f}"
    return _Markup(f'<progress max="100" value="{percent}">{percent} %</progress>')


def text(value: object) -> str:
    """``value`` as text: escaped, on one line, without what turns the direction of writing; a bar stays one."""
    if isinstance(value, _Markup):
        return value
    return "" if value is None else escape(printable(str(value)))
