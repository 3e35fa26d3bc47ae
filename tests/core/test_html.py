"""What a notebook shows: whoever chose a name chose no markup."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from tests.monitor.looks import whole_look
from wal2lake import html
from wal2lake.changelog.events import Event, EventList
from wal2lake.lsn import LSN
from wal2lake.monitor.notebook import Picture
from wal2lake.monitor.problem import Problem
from wal2lake.monitor.progress import Progress, TableProgress
from wal2lake.tables.listing import ListedTable, ListedTables
from wal2lake.verify.report import KeyRange, TableResult, VerifyReport

NAME = "<script>alert(1)</script>\u202e&amp;\n"
SHOWN = "<script>alert(1)</script>\\u202e&amp;\\n"  # as text
QUALIFIED = 'U&"<script>alert(1)</script>\\+00202E&amp;\\+00000A"'  # as what names.py makes of it


def _status() -> str:
    table = TableProgress(name=NAME, state="quarantined", rows=3, reason=NAME)
    return whole_look((Problem("table_quarantined", NAME, NAME),), tables=(table,)).status._repr_html_()


def _picture() -> str:
    """Of a copy."""
    copied = TableProgress(name=NAME, state="snapshot", chunks_total=4, chunks_done=1, bytes_total=80, bytes_read=20)
    return Picture(Progress(capture_state=NAME, pipeline_state="snapshot", tables=(copied,)))._repr_html_()


def _report() -> str:
    bad = KeyRange("id", None, 5, 3, 2)
    results = [TableResult("public", NAME, LSN(16), 1, 10, 9, 2, (bad,), 0.5)]
    return VerifyReport(LSN(16), results, note=NAME)._repr_html_()


SHOWS: dict[str, Callable[[], str]] = {
    "status": _status,
    "report": _report,
    "picture": _picture,
    "tables": lambda: ListedTables([ListedTable(NAME, "ready", "", None, NAME)])._repr_html_(),
    "events": lambda: EventList([Event("run-0", 1.5, "run", "failed", "error", NAME, NAME)])._repr_html_(),
}


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", SHOWS)
def test_names_are_text(name: str) -> None:
    seen = _Seen()
    seen.feed(SHOWS[name]())
    seen.close()
    assert seen.open == []
    assert seen.tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li", "progress"}
    assert seen.text.count(SHOWN) + seen.text.count(QUALIFIED) >= 2
    assert not {"\u202e", "\n"} & set(seen.text)


def test_what_is_said_of_a_difference() -> None:
    shown = _report()
    assert "1 ranges differ" in shown
    assert "id &lt; 5: 3 rows in the source, 2 in the lake" in shown
    assert "font-weight" in shown


def test_how_far_a_copy_is_has_a_bar() -> None:
    """One for all of it, and one for the table; in words as well."""
    assert _picture().count('<progress max="100" value="25">25 %</progress>') == 2
    assert "copying: 25%" in _picture()
    assert "progress" not in Picture(Progress())._repr_html_()


def test_a_list_of_nothing_is_nothing() -> None:
    assert (html.bullets([]), html.text(None)) == ("", "")
