"""`verify` as a user runs it: a Spark session of its own, progress while it waits, a table of results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rich.console import Console
from rich.table import Table

from wal2lake.config import Config
from wal2lake.monitor.verified import VerifyRecord
from wal2lake.spark.session import build_session
from wal2lake.verify import VerifyReport, chosen_tables, verify
from wal2lake.verify.report import HEADINGS

_MOST_FINDINGS = 20
_TICK_S = 0.1


def verify_lake(config: Config, console: Console, tables: Sequence[str] | None = None) -> VerifyReport:
    """Compare every table (or ``tables``, as schema.table) with its source at one LSN, and leave word of the result."""
    record = VerifyRecord(config)
    said: list[str] = []

    def say(text: str) -> None:
        """Verify says what it waits for as often as it looks; only news are worth a line."""
        if said[-1:] != [text]:
            said.append(text)
            record.said(text)
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    with record.recording():
        chosen_tables(config, tables)  # what can be refused is refused before Spark starts
        session = build_session(config)
        try:
            report = verify(config, session, tables, say=say)
        finally:
            session.stop()
        record.found(report, whole=tables is None)
    return report


def verify_beside(config: Config, console: Console, tick: Callable[[], object]) -> VerifyReport:
    """Verify while somebody has to look after a running pipeline: ``tick`` is called often until the report is there.

    Raises what verify_lake and ``tick`` raise; after the latter verify is left to end by itself.
    """
    found: Future[VerifyReport] = Future()

    def work() -> None:
        try:
            found.set_result(verify_lake(config, console))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            found.set_exception(error)

    worker = threading.Thread(target=work, name="verify", daemon=True)
    worker.start()
    while worker.is_alive():
        tick()
        worker.join(_TICK_S)
    return found.result()


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
            console.print(f"{result}: and more; --json lists all.", highlight=False)
    if report.note is not None:
        console.print(report.note, markup=False, highlight=False, soft_wrap=True)
