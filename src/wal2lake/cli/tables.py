"""The commands about single tables: how each stands, and what somebody wants of one, while the pipeline runs or not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from wal2lake.cli.options import with_config
from wal2lake.cli.output import console, print_json, say
from wal2lake.config import Config
from wal2lake.errors import ConfigError
from wal2lake.tables.statements import Dialect, statements

if TYPE_CHECKING:
    from wal2lake.changelog.requests import Wish

_Names = Annotated[list[str] | None, typer.Argument(help="Tables as schema.name.", show_default=False)]
_All = Annotated[bool, typer.Option("--all", help="All tables that the pipeline knows.")]
_DONE = {"retry": "is tried again", "resync": "is read anew, and swapped in when that is done", "skip": "is left out"}


@with_config
def tables(
    config: Config,
    names: _Names = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try tables again that are left out.")] = False,
    resync: Annotated[bool, typer.Option("--resync", help="Read tables anew, as `wal2lake resync`.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave tables out for good, until --retry or --resync.")] = False,
    all_: _All = False,
    sql: Annotated[
        Dialect | None,
        typer.Option("--sql", help="Print statements that make the lake's tables known to an engine or a catalog."),
    ] = None,
    catalog: Annotated[str, typer.Option("--catalog", help="With --sql: what the tables' names begin with.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """How each table stands, by what is durable about it; or have some tried again, read anew or left out.

    States: init (to be read), data_copy (its chunks are read), catch_up (in the lake, behind the stream), ready;
    quarantined (left out, with the reason), skipped (left out because somebody wants it); damaged (its document is).

    Example: wal2lake tables --retry shop.orders
    """
    if sql is None and catalog:
        raise ConfigError("--catalog has no effect without --sql.")
    flags: dict[Wish, bool] = {"retry": retry, "resync": resync, "skip": skip}
    wishes = [wish for wish, given in flags.items() if given]
    several = [*wishes, *(["sql"] if sql else [])]
    if len(several) > 1:
        raise ConfigError(f"--{several[0]} and --{several[1]} exclude each other.")
    if sql:
        _print_statements(config, names or [], sql, catalog, as_json)
    elif wishes:
        _ask(config, names or [], wishes[0], all_, as_json)
    elif all_:
        raise ConfigError("--all has no effect on a list.", hint="Add --retry, --resync or --skip.")
    else:
        _list(config, names or [], as_json)


@with_config
def resync(
    config: Config,
    names: _Names = None,
    all_: _All = False,
    forked: Annotated[
        bool,
        typer.Option(
            "--forked",
            help="After a promotion that left behind what the change log has: cut the log back to where the servers'"
            " histories part, and read the tables anew that may hold more.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables' names as JSON.")] = False,
) -> None:
    """Have tables read anew, by the pipeline that runs or by the next one.

    Until that is done the lake's tables stay as they are; then one commit exchanges all rows and columns.

    Example: wal2lake resync shop.orders
    """
    if forked and (names or all_):
        raise ConfigError("--forked finds the tables by itself.", hint="Leave out their names and --all.")
    if forked:
        _cut_back(config, as_json)
        return
    _ask(config, names or [], "resync", all_, as_json)


def _cut_back(config: Config, as_json: bool) -> None:
    from wal2lake.tables.forked import cut_back  # noqa: PLC0415 - the core installs without Arrow

    done = cut_back(config)
    say(f"The change log ends at {done.lsn} now, where the servers' histories part.")
    for pipeline, tables in done.tables.items():
        of = "" if pipeline == config.pipeline.name else f" of the pipeline {pipeline!r}"
        for name in tables:
            say(f"{name}{of} is read anew, and swapped in when that is done, by the next `wal2lake run`.")
    for name in done.readers:
        say(f"The reader {name} had read further: begin it anew, with a new checkpoint.")
    if as_json:
        print_json({"resync": done.tables.get(config.pipeline.name, []), "readers": done.readers})


def _ask(config: Config, names: list[str], wish: Wish, all_: bool, as_json: bool) -> None:
    from wal2lake.tables.asking import ask  # noqa: PLC0415
    from wal2lake.tables.exclusive import is_running  # noqa: PLC0415 - the core installs without Arrow and Spark

    if bool(names) == all_:
        raise ConfigError("Name the tables, or say --all." if not names else "Name tables or say --all, not both.")
    chosen = ask(config, names, wish)
    who = "by the pipeline that runs" if is_running(config) else "by the next `wal2lake run`"
    for name in chosen:
        say(f"{name} {_DONE[wish]} {who}.")
    if as_json:
        print_json({wish: chosen})


def _list(config: Config, names: list[str], as_json: bool) -> None:
    from wal2lake.tables.listing import list_tables  # noqa: PLC0415

    found = list_tables(config, names)
    if as_json:
        print_json([asdict(row) for row in found])
        return
    table = Table("table", "state", "since", "needs log from", "why", box=None)
    for row in found:
        table.add_row(row.table, row.state, row.since, str(row.needs_lsn or ""), row.reason)
    console.print(table)


def _print_statements(config: Config, names: list[str], dialect: Dialect, catalog: str, as_json: bool) -> None:
    from wal2lake.tables.listing import lake_tables  # noqa: PLC0415

    made = list(statements(lake_tables(config, names), dialect, catalog, config.lake.format))
    if as_json:
        print_json(made)
        return
    for statement in made:
        console.out(statement, highlight=False)
    if not made:
        say("No table is in the lake yet.")
