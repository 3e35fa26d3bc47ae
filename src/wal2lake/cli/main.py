"""`wal2lake`: the one place where errors become sentences and exit codes."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import Any

import psycopg
import typer
from typer.core import TyperGroup

from wal2lake import __version__
from wal2lake.cli import events, inspect, log, protocol, running, setup, tables
from wal2lake.cli import ui as page
from wal2lake.cli.output import print_json, say
from wal2lake.errors import ConfigError, InterruptedByUser, LogFullError, Wal2LakeError
from wal2lake.extras import missing_extra
from wal2lake.files import Trouble, disk_full, trouble
from wal2lake.lsn import LSN
from wal2lake.postgres.errors import map_error
from wal2lake.run.supervisor import ChildFailedError


class _Commands(TyperGroup):
    """Click would take a KeyboardInterrupt for its own, and end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedByUser("Interrupted.") from None


app = typer.Typer(
    name="wal2lake",
    cls=_Commands,
    help="PostgreSQL logical replication into lakehouse tables: init, check, run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
)
_BEGIN, _RUN, _LOOK = "Begin and end", "Run", "Look"

app.command(rich_help_panel=_BEGIN)(setup.init)
app.command(rich_help_panel=_BEGIN)(setup.check)
app.command(rich_help_panel=_BEGIN)(setup.drop)
app.command(rich_help_panel=_RUN)(running.run)
app.command(rich_help_panel=_RUN)(running.capture)
app.command(rich_help_panel=_RUN)(running.pipeline)
app.command(rich_help_panel=_RUN)(running.metrics)
app.command(rich_help_panel=_RUN)(tables.resync)
app.command(rich_help_panel=_RUN)(running.demo)
app.command(rich_help_panel=_LOOK)(inspect.status)
app.command(rich_help_panel=_LOOK)(events.events)
app.command(rich_help_panel=_LOOK)(page.ui)
app.command(rich_help_panel=_LOOK)(inspect.verify)
app.command(rich_help_panel=_LOOK)(tables.tables)
app.add_typer(log.app, name="log", rich_help_panel=_LOOK)
app.add_typer(protocol.app)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """PostgreSQL logical replication into lakehouse tables."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with the documented code (docs/errors.md)."""
    try:
        app()
    except (Exception, KeyboardInterrupt) as error:
        explained = _explained(error)
        if explained is None:
            raise
        say(f"wal2lake: {explained}", logging.ERROR)
        if "--json" in sys.argv:
            with suppress(LogFullError, BrokenPipeError):  # it has been said, and may be why it cannot be written
                print_json({"error": _described(explained)})
        sys.exit(explained.code if isinstance(explained, ChildFailedError) else explained.exit_code)


def _described(error: Wal2LakeError) -> dict[str, Any]:
    """An error as ``--json`` has it: what its sentence says, in parts (docs/errors.md)."""
    lsn = None if error.lsn is None else LSN(error.lsn)
    places = {"relation": error.relation, "column": error.column, "offset": error.offset, "lsn": lsn}
    return {"class": type(error).__name__, "message": error.message, "hint": error.hint, **places}


def _explained(error: BaseException) -> Wal2LakeError | None:
    """What ``error`` means to the user; None for a defect of ours, whose traceback is worth a report."""
    if isinstance(error, Wal2LakeError):
        return error
    if isinstance(error, KeyboardInterrupt):  # before a command was found, or after it
        return InterruptedByUser("Interrupted.")
    if isinstance(error, psycopg.Error):
        return map_error(error)
    if (missing := missing_extra(error, next(iter(sys.argv[1:]), ""))) is not None:
        return missing
    if isinstance(error, OSError) and trouble(error) is Trouble.FULL:
        return disk_full(error, None if error.filename is None else os.fsdecode(error.filename))
    if isinstance(error, OSError) and error.filename is not None:
        return ConfigError(
            f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}.",
            hint="Check the path and who may use it.",
        )
    return None
