"""How far it is, in a notebook: one picture, brought up to date in its place while somebody waits.

The rule: it is made of the same summary as page and terminal, and changes nothing; elsewhere than in a notebook it is
the terminal's view. What `verify` finds here is left for `status` as any verify's is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from wal2lake import html
from wal2lake.config import Config
from wal2lake.errors import SparkError
from wal2lake.monitor.progress import DIED, Progress, TableProgress, read_progress
from wal2lake.monitor.summary import copied_share, is_copied, ranked, totals
from wal2lake.monitor.verified import VerifyRecord
from wal2lake.monitor.view import View, copying_text, lag, lag_text, states_text

if TYPE_CHECKING:
    from wal2lake.verify import VerifyReport

T = TypeVar("T")
Show = Callable[[T], None]
_MOST_TABLES = 15
_HEADINGS = ("table", "state", "copied", "rows", "changes/s", "lag")
_SETTLED = ("streaming", "quarantined", "skipped", "unpublished")


@dataclass(frozen=True)
class Picture:
    """``progress`` as a notebook shows it."""

    progress: Progress

    def _repr_html_(self) -> str:
        """For notebooks: a bar for the copy and one for each table that is copied."""
        progress, found = self.progress, totals(self.progress)
        facts = [
            ("capture", progress.capture_state),
            ("pipeline", progress.pipeline_doing or progress.pipeline_state),
            ("lag", lag_text(progress)),
        ]
        copying = (
            html.table((), [(html.bar(found.copying.share), copying_text(found.copying))]) if found.copying else ""
        )
        rows = ranked(progress.tables)
        tables = html.table(_HEADINGS, (_cells(progress, row) for row in rows[:_MOST_TABLES])) if rows else ""
        more = html.bullets([f"all: {states_text(found.states)}"]) if len(rows) > _MOST_TABLES else ""
        return html.table((), facts) + copying + tables + more


def _cells(progress: Progress, row: TableProgress) -> tuple[object, ...]:
    copied = is_copied(row)
    rows = row.rows_read if copied and not row.rows else row.rows
    return (
        row.name,
        row.state.replace("_", " "),
        html.bar(copied_share([row])) if copied else None,
        None if rows is None else f"{rows:,}",
        f"{row.changes_per_s:,.0f}",
        lag(progress, row),
    )


@dataclass(frozen=True)
class Comparing:
    """How far a verify is: the ``share`` of the tables that is digested, 0 to 1, and what it waited for last."""

    share: float = 0.0
    said: str = ""

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html.table((), [(html.bar(self.share), f"comparing: {self.share:.0%}", self.said)])


def verify(config: Config, spark: Any, tables: Sequence[str] | None = None, timeout_s: float = 60.0) -> VerifyReport:
    """`wal2lake verify` in the session ``spark`` (pyspark.sql.SparkSession): all tables or ``tables`` (schema.name),
    shown as it goes. ``timeout_s``: within which the pipeline makes progress, if it is waited for.

    Raises what wal2lake.verify.verify raises. What is found is told as an event, and a difference is a finding of
    `status` from then on.
    """
    from wal2lake.verify import verify as compare  # noqa: PLC0415 - the other half of this needs no Spark

    record, now = VerifyRecord(config), Comparing()
    with _showing(Comparing(), _lines) as show, record.recording():

        def tell(**news: Any) -> None:
            nonlocal now
            now = replace(now, **news)
            show(now)

        def say(text: str) -> None:
            if text != now.said:
                record.said(text)
                tell(said=text)

        report = compare(
            config, spark, tables, timeout_s=timeout_s, say=say, show=lambda share: tell(share=share, said="")
        )
        record.found(report, whole=tables is None)
    return report


def is_level(progress: Progress) -> bool:
    """All tables are in the lake, but for those that are left out, and it has all that is in the change log."""
    settled = all(table.state in _SETTLED for table in progress.tables)
    return progress.pipeline_state == "streaming" and bool(progress.tables) and settled and not progress.lag_bytes


def watch(config: Config, until: Callable[[Progress], object] = is_level, every_s: float = 0.5) -> None:
    """Show how far capture and pipeline are, until ``until`` holds: by itself, until the lake is level with the log.

    Raises SparkError when the pipeline ends meanwhile with an error. Interrupting it interrupts the watching alone.
    """
    began = time.monotonic()
    with _showing(Picture(Progress()), _terminal) as show:
        while True:
            progress = read_progress(config.log.path)
            show(Picture(progress))
            if until(progress):
                return
            age_s = progress.pipeline_age_s
            if progress.pipeline_state in ("failed", DIED) and age_s is not None and age_s < time.monotonic() - began:
                raise SparkError(f"The pipeline {progress.pipeline_state}. {progress.pipeline_reason or ''}".rstrip())
            time.sleep(every_s)


@contextmanager
def _showing(first: T, elsewhere: Callable[[], AbstractContextManager[Show[T]]]) -> Iterator[Show[T]]:
    """A function that shows a picture in the place of the ``first`` one."""
    if not _in_notebook():
        with elsewhere() as show:
            yield show
        return
    from IPython.display import display  # noqa: PLC0415 - a notebook has it

    shown = display(first, display_id=True)
    yield shown.update


@contextmanager
def _lines() -> Iterator[Show[Comparing]]:
    """What it waits for, as `wal2lake verify` says it."""
    console, said = Console(stderr=True), [""]

    def show(now: Comparing) -> None:
        if now.said and now.said != said[-1]:
            said.append(now.said)
            console.print(now.said, highlight=False, markup=False, soft_wrap=True)

    yield show


@contextmanager
def _terminal() -> Iterator[Show[Picture]]:
    with View(Console()) as view:
        yield lambda picture: view.show(picture.progress)


def _in_notebook() -> bool:
    """Where IPython's kernel runs this; its terminal is one like any other."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
