"""The commands that look: where everything stands, and whether lake and source are equal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from wal2lake.cli.options import with_config, with_spark_config
from wal2lake.cli.output import console, err_console, print_json, say
from wal2lake.config import Config
from wal2lake.errors import VerifyError
from wal2lake.monitor.view import render, size

if TYPE_CHECKING:
    from wal2lake.monitor.status import Status

NOT_YET = 75  # EX_TEMPFAIL of sysexits.h: ask again
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@with_config
def status(config: Config, as_json: _Json = False) -> None:
    """Where slot, change log and tables stand; exit code 1 when something is missing or stands still, 75 for "not yet".

    That is: no slot, publication or log, a slot that is lost or idle, a capture or pipeline that does not run, waits or
    failed, a table that is quarantined or that `verify` found to differ, a lake that is more than ten minutes behind.
    Each has its sentence. Code 75 says that nothing is wrong and the lake is not kept up yet: Spark is being started,
    or the first snapshot is read; so `until wal2lake status; do sleep 5; done` waits for that.
    """
    from wal2lake.monitor.status import read_status  # noqa: PLC0415 - the core installs without Arrow and Spark

    found = read_status(config)
    if as_json:
        print_json({**asdict(found), "ok": not found.problems, "ready": found.ready})
    else:
        console.print(_places(found))
        console.print(render(found.progress))
        for problem in found.problems:
            say(problem)
        if not found.problems and not found.ready:
            say(found.not_yet)
    if not found.ready:
        raise typer.Exit(1 if found.problems else NOT_YET)


def _places(found: Status) -> Table:
    table = Table(box=None, show_header=False)
    if found.server_wal_lsn is not None:
        table.add_row("server", f"WAL at {found.server_wal_lsn}")
    if found.slot is not None and found.slot.unfinished:
        table.add_row(f"slot {found.slot.slot_name}", f"being made by {found.slot.active_pid}")
    elif found.slot is not None and found.slot.confirmed_flush_lsn is not None:
        busy = f"in use by {found.slot.active_pid}" if found.slot.active else "idle"
        table.add_row(f"slot {found.slot.slot_name}", f"{busy}, confirmed {found.slot.confirmed_flush_lsn}")
        if found.server_wal_lsn is not None:
            table.add_row(
                "", f"{size(max(0, found.server_wal_lsn - found.slot.confirmed_flush_lsn))} behind the server"
            )
    if found.log is not None:
        table.add_row(
            "change log", f"{found.log.segments} segments, {size(found.log.size)}, durable to {found.log.durable_lsn}"
        )
        if found.progress.open_streams:
            table.add_row("", f"{found.progress.open_streams} transactions are streamed and have not ended")
        if found.log.prepared:
            table.add_row("", f"prepared, and not ended: transactions {', '.join(map(str, found.log.prepared))}")
    for name, lsn in found.applied.items():
        reached = found.reached(name)
        idle = "" if reached == lsn else f", last changed at {lsn}"
        table.add_row(name, "no table yet" if lsn is None else f"applied to {reached}{idle}")
    return table


@with_spark_config
def verify(
    config: Config,
    tables: Annotated[list[str] | None, typer.Argument(help="schema.table …; all without.")] = None,
    as_json: _Json = False,
) -> None:
    """Prove that lake and source are equal, per key range, at one LSN; the stream may go on meanwhile.

    Every table has its outcome; one that differs stays a finding of `status` until it is found equal or is read anew.
    Exit code 18 when one differs, could not be compared or is quarantined; 8 when the
    publication has no table.
    """
    from wal2lake.run.verifying import show_report, verify_lake  # noqa: PLC0415

    report = verify_lake(config, err_console, tables)
    if as_json:
        console.out(report.to_json(), highlight=False)
    else:
        show_report(report, console)
    if not report.ok:
        raise typer.Exit(VerifyError.exit_code)
