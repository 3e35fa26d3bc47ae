"""Begin and end: `init` writes the configuration, `check` says what is not ready and how to mend it, `drop` removes."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from wal2lake.cli.options import DEFAULT_FILE, with_config
from wal2lake.cli.output import console, print_json, say
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.errors import ConfigError, RightsError
from wal2lake.names import printable
from wal2lake.postgres.connection import Connection, connect, mapped_errors
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import slot_state
from wal2lake.wire.command_text import quote_identifier

_MARKS = {"ok": Text("ok", "green"), "warning": Text("warn", "yellow"), "error": Text("error", "red")}


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = DEFAULT_FILE,
    dsn: Annotated[str, typer.Option(help="libpq's connection string of the source.")] = "",
    publication: Annotated[str, typer.Option(help="The publication to read.")] = "wal2lake",
    slot: Annotated[str, typer.Option(help="The replication slot to make.")] = "wal2lake",
    lake: Annotated[str, typer.Option(help="The folder of the Delta tables.")] = LakeConfig.path,
    log: Annotated[str, typer.Option(help="The change log's folder.")] = LogConfig.path,
    force: Annotated[bool, typer.Option(help="Overwrite the file if it is there.")] = False,
) -> None:
    """Write a commented wal2lake.toml."""
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already.", hint="--force overwrites it.")
    SourceConfig(slot=slot)
    write_config(path, dsn=dsn, publication=publication, slot=slot, lake=lake, log=log)
    say(f"Wrote {path}. Next: wal2lake check" + ("" if path == DEFAULT_FILE else f" --config {path}"))


def write_config(path: Path, **values: str) -> None:
    """Fill the template; the file may hold a password, so only its owner can read it."""
    text = (files("wal2lake.cli") / "template.toml").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", json.dumps(value, ensure_ascii=False))
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


@with_config
def check(
    config: Config, as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False
) -> None:
    """See whether the server is ready, and whether the change log is of it; findings come with the SQL that mends."""
    findings = preflight(config.source.dsn, config.source.publication, config.source.slot)
    if Path(config.log.path).exists() or Path(config.lake.path).exists():
        from wal2lake.capture.startup import change_log_findings  # noqa: PLC0415 - the core installs without Arrow

        findings += change_log_findings(config)
    failed = any(not finding.ok and finding.level == "error" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        table = Table("", "check", "finding", box=None)
        for finding in findings:
            text = Text(printable(finding.text))
            if finding.sql:
                text.append(f"\n{printable(finding.sql)}", style="bold")
            table.add_row(_MARKS[finding.level], finding.name, text)
        console.print(table)
        say("Not ready: mend what is marked error." if failed else "Ready. Next: wal2lake run")
    if failed:
        raise typer.Exit(1)


@with_config
def drop(
    config: Config,
    with_publication: Annotated[bool, typer.Option("--with-publication", help="Drop the publication as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the replication slot (and the publication) from the server; the lake and the log stay."""
    slot = config.source.slot
    if not yes:
        _ask_to_drop(slot, config.source.publication if with_publication else None)
    with connect(config.source.dsn, application_name="wal2lake drop", writable=True) as connection, mapped_errors():
        if with_publication:
            _require_own(connection, config.source.publication)
        if slot_state(connection, slot) is None:
            say(f"There is no slot {slot}.")
        else:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            say(f"Dropped the slot {slot}.")
        if with_publication:
            connection.execute(f"DROP PUBLICATION IF EXISTS {quote_identifier(config.source.publication)}")
            say(f"Dropped the publication {config.source.publication}.")
    if Path(config.log.path).exists():
        say(f"Delete {config.log.path} before you begin again: it belongs to that slot.")


def _require_own(connection: Connection, publication: str) -> None:
    """Raise RightsError, before anything is dropped, for a publication that only others may drop."""
    sql = "SELECT pg_get_userbyid(pubowner), pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"
    row = connection.execute(sql, [publication]).fetchone()
    if row is not None and not row[1]:
        raise RightsError(
            f"The publication {publication} belongs to {row[0]}, so nothing was dropped.",
            hint="Leave out --with-publication, and have its owner run"
            f" DROP PUBLICATION {quote_identifier(publication)}; afterwards.",
        )


def _ask_to_drop(slot: str, publication: str | None) -> None:
    what = f"the slot {slot}" + (f" and the publication {publication}" if publication else "")
    try:
        agreed = typer.confirm(f"Drop {what}? What is not in the change log yet is lost to this pipeline.")
    except typer.Abort:
        raise ConfigError("drop asks first, and nobody answered.", hint="--yes drops without asking.") from None
    if not agreed:
        raise typer.Abort
