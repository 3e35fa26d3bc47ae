"""Show progress: a table that redraws itself on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wal2lake.monitor.progress import Progress, TableProgress, is_alive
from wal2lake.monitor.summary import Copying, count_states, is_copied, ranked, totals
from wal2lake.names import printable

_LINE_EVERY_S = 10.0
_NOTE_LINES = 2  # that the note may well take
_COLOURS = {"streaming": "green", "snapshot": "cyan", "catching_up": "cyan", "quarantined": "red", "missing": "red"}


class View:
    """A context manager; ``show`` may be called as often as one likes. ``note`` is the last thing worth telling."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
        self._last_line = time.monotonic() - _LINE_EVERY_S / 2

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress, note: str = "") -> None:
        """Draw ``progress``, or print a line when the last one is some seconds old."""
        if self._live is not None:
            self._live.update(render(progress, note, self._console.size.height - 1))
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(line(progress, note), markup=False, highlight=False, soft_wrap=True)


def line(progress: Progress, note: str = "") -> str:
    """Everything in one line of plain text."""
    found = totals(progress)
    tables = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items())) or "none yet"
    capture, pipeline = _states(progress)
    text = (
        f"capture {capture}; pipeline {pipeline}; tables: {tables}; "
        f"{found.changes:,} changes, {found.changes_per_s:,.0f}/s; lag {lag_text(progress)}"
    )
    copied = f"; {copying_text(found.copying)}" if found.copying else ""
    return f"{text}{copied}; {note}" if note else f"{text}{copied}"


def render(progress: Progress, note: str = "", height: int | None = None) -> Table:
    """The live view: a row a table. Where those do not fit into ``height`` lines: what all of them amount to, and
    then the troubled and the busy, each in one line."""
    found, rows = totals(progress), list(progress.tables)
    capture, pipeline = _states(progress)
    titles = [f"capture {capture} · pipeline {pipeline}"]
    if found.copying:
        titles.append(copying_text(found.copying))
    lines = None if height is None else height - len(titles) - 1 - _NOTE_LINES * bool(note)
    short = lines is not None and len(rows) > lines
    if lines is not None and short:
        held = "" if found.rows is None else f" · {found.rows:,} rows"
        titles.append(f"{found.tables:,} tables: {states_text(found.states)}{held} · lag {lag_text(progress)}")
        rows = ranked(rows)[: max(1, lines - 2)]
    table = _table(progress, rows, short)
    table.title = Text("\n".join(map(printable, titles)), no_wrap=short, overflow="ellipsis" if short else "fold")
    captions = [note] if note else []
    if short:
        captions.insert(0, f"… and {states_text(count_states(ranked(progress.tables)[len(rows) :]))} more")
    table.caption = "\n".join(captions) or None
    return table


def _table(progress: Progress, rows: Iterable[TableProgress], short: bool) -> Table:
    """``short``: one line each, whatever is cut."""
    table = Table(box=None, caption_justify="left", title_justify="left", expand=short)
    table.add_column("table", overflow="ellipsis" if short else "fold", no_wrap=short, ratio=1 if short else None)
    table.add_column("state", overflow="ellipsis", no_wrap=short, ratio=1 if short else None)
    for heading in ("rows", "changes", "changes/s", "lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        count = row.rows_read if is_copied(row) and not row.rows else row.rows
        cells = ("" if count is None else f"{count:,}", f"{row.changes:,}", f"{row.changes_per_s:,.0f}")
        table.add_row(row.name, _styled_state(row), *cells, lag(progress, row))
    return table


def states_text(states: Mapping[str, int]) -> str:
    """As in "2 quarantined, 298 streaming"."""
    return ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in states.items())


def copying_text(copying: Copying) -> str:
    """How far the copy is, and how long it will take."""
    left = "" if copying.left_s is None else f", about {format_duration(copying.left_s)} left"
    return (
        f"copying: {copying.share:.0%}{left}; {copying.done:,} of {copying.tables:,} tables read,"
        f" {copying.rows:,} rows, {copying.rows_per_s:,.0f} rows/s"
    )


def lag(progress: Progress, table: TableProgress) -> str:
    """How far a table is behind the log: as far as all that have changes in it, which move together, unless it is left
    out."""
    if table.state == "quarantined":
        return size(max(0, progress.durable_lsn - table.applied_lsn))
    if not table.behind and progress.pipeline_lives:
        return "0 B, 0.0 s"
    return lag_text(progress) if table.state != "snapshot" else ""


def lag_text(progress: Progress) -> str:
    """How old what waits is nobody can tell while no pipeline runs."""
    waits = size(progress.lag_bytes)
    return waits if progress.lag_s is None else f"{waits}, {progress.lag_s:.1f} s"


def _styled_state(row: TableProgress) -> Text:
    text = row.state.replace("_", " ")
    if row.state == "snapshot" and row.chunks_total > 1:
        text += f" {row.chunks_done}/{row.chunks_total}"
    elif row.state == "snapshot" and row.chunks_total:
        text += " read" if row.chunks_done else " waits to be read"
    if row.reason:
        text += f": {row.reason}"
    return Text(printable(text), style=_COLOURS.get(row.state, ""))


def _states(progress: Progress) -> tuple[str, str]:
    """Of capture and pipeline."""
    pipeline = progress.pipeline_doing or progress.pipeline_state
    return (
        _state_text(progress.capture_state, progress.capture_age_s),
        _state_text(pipeline, progress.pipeline_age_s),
    )


def _state_text(state: str, age_s: float | None) -> str:
    """A state with its age, where it is one of the past: the figures beside it are as old."""
    return state if age_s is None or is_alive(state) else f"{state} ({format_duration(age_s)} ago)"


def format_duration(seconds: float) -> str:
    """A time in the unit that fits."""
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def size(count: int) -> str:
    """Bytes in the unit that fits."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
