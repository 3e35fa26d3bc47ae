"""`verify` as a user runs it: a Spark session of its own, progress while it waits, a table of results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from wal2lake.config import Config
from wal2lake.spark.session import build_session
from wal2lake.verify import VerifyReport, verify
from wal2lake.verify.report import HEADINGS

_MOST_FINDINGS = 20


def verify_lake(config: Config, console: Console, tables: Sequence[str] | None = None) -> VerifyReport:
    """Compare every table (or ``tables``, as schema.table) with its source at one LSN."""
    said: list[str] = []

    def say(text: str) -> None:
        """Verify says what it waits for as often as it looks; only news are worth a line."""
        if said[-1:] != [text]:
            said.append(text)
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    session = build_session(config)
    try:
        return verify(config, session, tables, say=say)
    finally:
        session.stop()


def show_report(report: VerifyReport, console: Console) -> None:
    """A row a table; then a line for everything that differs, by table and key range."""
    table = Table(*HEADINGS, box=None)
    for result in report.tables:
        table.add_row(*result.row(), style=None if result.ok else "red")
    console.print(table)
    for result in report.tables:
        for finding in result.findings()[:_MOST_FINDINGS]:
            console.print(finding, markup=False, highlight=False, soft_wrap=True)
        if len(result.findings()) > _MOST_FINDINGS:
            console.print(f"{result.namespace}.{result.name}: and more; --json lists all.", highlight=False)
    if report.note is not None:
        console.print(report.note, markup=False, highlight=False, soft_wrap=True)
