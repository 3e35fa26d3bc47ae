"""Show progress: a table that redraws itself on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wal2lake.monitor.progress import Progress, TableProgress, is_alive
from wal2lake.names import printable

_LINE_EVERY_S = 10.0
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
            self._live.update(render(progress, note))
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(line(progress, note), markup=False, highlight=False, soft_wrap=True)


def line(progress: Progress, note: str = "") -> str:
    """Everything in one line of plain text."""
    states: dict[str, int] = {}
    for table in progress.tables:
        states[table.state] = states.get(table.state, 0) + 1
    tables = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
    rate = sum(table.changes_per_s for table in progress.tables)
    text = (
        f"capture {_state_text(progress.capture_state, progress.capture_age_s)}; "
        f"pipeline {_state_text(progress.pipeline_state, progress.pipeline_age_s)}; tables: {tables}; "
        f"{progress.changes:,} changes, {rate:,.0f}/s; lag {lag_text(progress)}"
    )
    return f"{text}; {note}" if note else text


def render(progress: Progress, note: str = "") -> Table:
    """The live view: a row a table."""
    table = Table(box=None, caption_justify="left", title_justify="left")
    capture = _state_text(progress.capture_state, progress.capture_age_s)
    table.title = f"capture {capture} · pipeline {_state_text(progress.pipeline_state, progress.pipeline_age_s)}"
    table.add_column("table", overflow="fold")
    table.add_column("state")
    for heading in ("rows", "changes", "changes/s", "lag"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in progress.tables:
        rows = "" if row.rows is None else f"{row.rows:,}"
        table.add_row(
            row.name, _styled_state(row), rows, f"{row.changes:,}", f"{row.changes_per_s:,.0f}", lag(progress, row)
        )
    table.caption = note or None
    return table


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
    if row.chunks_total and row.state == "snapshot":
        text += f" {row.chunks_done or 0}/{row.chunks_total}"
    if row.reason:
        text += f": {row.reason}"
    return Text(printable(text), style=_COLOURS.get(row.state, ""))


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
