"""`wal2lake log`: look into the change log. Lines name kinds, relations and lengths, never a cell value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from wal2lake.cli.options import with_config
from wal2lake.cli.output import console, print_json, say
from wal2lake.cli.shared import load_local_plugin, pairs
from wal2lake.config import Config
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN

if TYPE_CHECKING:
    from wal2lake.changelog.log import ChangeLog

app = typer.Typer(
    help="The change log: list its segments, dump its messages, verify its files; see and forget its consumers.",
    no_args_is_help=True,
)


@app.command("list")
@with_config
def list_(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="A JSON array of segments.")] = False
) -> None:
    """One line per segment, oldest first."""
    from wal2lake.changelog.dump import list_segments  # noqa: PLC0415 - the core installs without Arrow

    _show("segment", list(list_segments(_open(config))), as_json)


@app.command()
@with_config
def dump(
    config: Config,
    start: Annotated[str, typer.Option("--from", help="Transactions that end above this LSN.")] = "",
    end: Annotated[str, typer.Option("--to", help="Transactions that end at or below this LSN.")] = "",
) -> None:
    """One line per message of committed transactions: LSN, xid, kind."""
    from wal2lake.changelog.dump import dump_messages  # noqa: PLC0415

    log = _open(config)
    first = LSN.parse(start) if start else log.start_lsn
    for line in dump_messages(log, first, LSN.parse(end) if end else log.last_end_lsn):
        console.out(line, highlight=False)


@app.command()
@with_config
def decode(
    config: Config,
    plugin: Annotated[str, typer.Option("--plugin", "-P", help="An output plugin in Python, or module:Class.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE or NAME, for the plugin; may be repeated.")
    ] = None,
    start_lsn: Annotated[
        LSN | None, typer.Option(parser=LSN.parse, metavar="LSN", help="Transactions that end above this LSN.")
    ] = None,
    end_lsn: Annotated[
        LSN | None, typer.Option(parser=LSN.parse, metavar="LSN", help="Transactions that end at or below this LSN.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="An object a line: lsn, xid, data.")] = False,
) -> None:
    """Run an output plugin over the log's transactions, as often as you like: what recv writes, without a server.

    Example: wal2lake log decode --plugin test_decoding -o skip-empty-xacts --end-lsn 0/1A2B3C4
    """
    from wal2lake.changelog.decoding import decode_log  # noqa: PLC0415

    loaded = load_local_plugin(plugin)
    for piece in decode_log(_open(config), loaded, pairs(option), start=start_lsn, end=end_lsn):
        sys.stdout.buffer.write(piece.json_line() if as_json else piece.line())
    sys.stdout.buffer.flush()


@app.command()
@with_config
def verify(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False
) -> None:
    """Check every file's checksum, build every segment's index and metadata anew from its messages, and compare."""
    from wal2lake.changelog.dump import verify_log  # noqa: PLC0415
    from wal2lake.changelog.log import ChangeLog  # noqa: PLC0415
    from wal2lake.changelog.places import SEGMENTS  # noqa: PLC0415

    storage = ChangeLog.find(config.log.path)
    segments, faults = len(storage.names(SEGMENTS)), list(verify_log(storage))
    if as_json:
        print_json({"ok": not faults, "segments": segments, "faults": faults})
    else:
        for fault in faults:
            console.out(fault, highlight=False)
        say(f"{segments} segments, {len(faults)} faults.")
    if faults:
        raise typer.Exit(LogCorruptError.exit_code)


@app.command()
@with_config
def consumers(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="A JSON array of consumers.")] = False
) -> None:
    """One line per consumer, the one that holds back most first: the log keeps what any has not released."""
    from wal2lake.changelog.consumers import list_consumers  # noqa: PLC0415

    _show("consumer", list(list_consumers(_open(config))), as_json)


@app.command()
@with_config
def forget(
    config: Config,
    name: Annotated[str, typer.Argument(help="A consumer that will not come back, as `log consumers` names it.")],
) -> None:
    """Keep nothing for a consumer any more: a pipeline of an old name, with its claims, or a query that is gone.

    What it has not read may be removed right then. If it comes back nevertheless, it has to start anew from a snapshot.
    """
    from wal2lake.changelog.consumers import forget_consumer  # noqa: PLC0415

    for forgotten in forget_consumer(_open(config), name, config.pipeline.name):
        say(f"Forgot {forgotten}.")


def _show(kind: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """A line per row, under the names of its values."""
    if as_json:
        print_json(rows)
        return
    table = Table(*(rows[0] if rows else (kind,)), box=None)
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)


def _open(config: Config) -> ChangeLog:
    from wal2lake.changelog.log import ChangeLog  # noqa: PLC0415

    return ChangeLog.open(config.log.path)
