"""Begin and end: `init` writes the configuration, `check` says what is not ready and how to mend it, `drop` removes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from threading import Event
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from wal2lake.changelog.documents import read_document
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.places import IDENTITY, WRITER_LOCK, pipeline_lock
from wal2lake.changelog.storage import Storage
from wal2lake.cli.options import DEFAULT_FILE, with_config
from wal2lake.cli.output import console, print_json, say
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.errors import (
    ConfigError,
    InterruptedByUser,
    LogCorruptError,
    LogMismatchError,
    RightsError,
    SlotInUseError,
    Wal2LakeError,
)
from wal2lake.extras import missing_extra
from wal2lake.monitor.progress import read_progress
from wal2lake.monitor.view import format_duration
from wal2lake.names import printable
from wal2lake.postgres.catalog import identify
from wal2lake.postgres.connection import Connection, connect, mapped_errors
from wal2lake.postgres.findings import Finding, as_script, some
from wal2lake.postgres.preflight import LOCK_TIMEOUT, preflight, published_bytes
from wal2lake.postgres.slots import slot_state
from wal2lake.retry import retry_while_in_use
from wal2lake.run.readiness import readiness
from wal2lake.urls import is_object_url
from wal2lake.wire.command_text import quote_identifier

PATIENCE_S = 3.0  # for the walsender of a capture that has just ended
_MARKS = {"ok": Text("ok", "green"), "warning": Text("warn", "yellow"), "error": Text("error", "red")}


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = DEFAULT_FILE,
    dsn: Annotated[str, typer.Option(help="libpq's connection string of the source.")] = "",
    publication: Annotated[str, typer.Option(help="The publication to read.")] = "wal2lake",
    slot: Annotated[str, typer.Option(help="The replication slot to make.")] = "wal2lake",
    lake: Annotated[
        str, typer.Option(help="The folder of the Delta tables, or its URL in an object store.")
    ] = LakeConfig.path,
    log: Annotated[str, typer.Option(help="The change log's folder, or its URL in an object store.")] = LogConfig.path,
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
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that mends, for psql; what is to be decided as comments.")
    ] = False,
) -> None:
    """See whether server and machine are ready, and whether the change log is of that server; changes nothing.

    Findings come with the SQL that mends. Example: wal2lake check --sql | psql -d shop -U postgres
    """
    if as_json and as_sql:
        raise ConfigError("--json and --sql exclude each other.")
    source = config.source
    findings = preflight(source.login, source.publication, source.slot)
    findings += [*_change_log(config), *_last_failures(config), *_types(config)]
    findings += readiness(config, published_bytes(source.login, source.publication))
    failed = any(finding.level == "error" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    elif as_sql:
        typer.echo(as_script(findings))
    else:
        console.print(_table(findings))
        say("Not ready: mend what is marked error." if failed else "Ready. Next: wal2lake run")
    if failed:
        raise typer.Exit(1)


def _change_log(config: Config) -> list[Finding]:
    if not any(is_object_url(place) or Path(place).exists() for place in (config.log.path, config.lake.path)):
        return []
    try:
        from wal2lake.capture.startup import change_log_findings  # noqa: PLC0415 - the core installs without Arrow
    except ModuleNotFoundError as error:
        missing = missing_extra(error, "check")
        if missing is None:
            raise
        return [Finding("change_log", "warning", f"The change log cannot be looked at. {missing}")]
    return change_log_findings(config)


def _last_failures(config: Config) -> Iterator[Finding]:
    """What ended capture or the pipeline when they ran last, which no look at server and machine may show."""
    known = read_progress(config.log.path)
    ended = (
        ("Capture", known.capture_state, known.capture_age_s, known.capture_reason),
        ("The pipeline", known.pipeline_state, known.pipeline_age_s, known.pipeline_reason),
    )
    for who, state, age_s, reason in ended:
        if state == "failed" and reason is not None:
            text = (
                f"{who} failed {format_duration(age_s or 0)} ago; unless that was mended since, it will again: {reason}"
            )
            yield Finding("last_run", "warning", text)


def _types(config: Config) -> list[Finding]:
    """What keeps others from being looked at says so elsewhere."""
    try:
        if not storage_at(config.log.path).exists(IDENTITY):
            return []
        from wal2lake.tables.column_types import would_gain  # noqa: PLC0415 - the core installs without Arrow

        columns = would_gain(config)
    except (ModuleNotFoundError, Wal2LakeError):
        return []
    if not columns:
        return [Finding("types", "ok", "Every column in the lake has the type that it would have if it were read now.")]
    text = f"{len(columns)} column(s) in the lake would have a better type if read now: {some(columns)}."
    return [Finding("types", "ok", f"{text} `wal2lake resync` of their tables gives it to them.")]


def _table(findings: list[Finding]) -> Table:
    table = Table("", "check", "finding", box=None)
    for finding in findings:
        text = Text(printable(finding.text))
        if finding.sql:
            text.append(f"\n{printable(finding.sql)}", style="bold")
        table.add_row(_MARKS[finding.level], finding.name, text)
    return table


@with_config
def drop(
    config: Config,
    with_publication: Annotated[bool, typer.Option("--with-publication", help="Drop the publication as well.")] = False,
    with_log: Annotated[bool, typer.Option("--with-log", help="Delete the change log as well, to begin anew.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the replication slot (and the publication, and the change log): all of it or nothing. The lake stays."""
    publication = config.source.publication if with_publication else None
    log = storage_at(config.log.path)
    _require_unused(config)
    if not yes:
        _ask_to_drop(config.source.slot, publication, log.where if with_log else None)
    kept = None if with_log else log
    retry_while_in_use(lambda: _drop_from_server(config.source, publication, kept), PATIENCE_S, Event())
    if with_log:
        say(f"Deleted the change log {log.where}." if log.clear() else f"There is no change log {log.where}.")
    elif log.exists(IDENTITY):
        say(f"The change log {log.where} belonged to that slot: `wal2lake drop --with-log` deletes it, to begin anew.")


def _drop_from_server(source: SourceConfig, publication: str | None, kept_log: Storage | None) -> None:
    """The publication first, and for good only when the slot is gone, whose end no transaction takes back."""
    settings = {"lock_timeout": LOCK_TIMEOUT}
    said = []
    with (
        connect(source.login, application_name="wal2lake drop", settings=settings, writable=True) as connection,
        mapped_errors(),
        connection.transaction(),
    ):
        if publication is not None and _require_own(connection, publication):
            connection.execute(f"DROP PUBLICATION {quote_identifier(publication)}".encode())
            said.append(f"Dropped the publication {publication}.")
        elif publication is not None:
            said.append(f"There is no publication {publication}.")
        state = slot_state(connection, source.slot)
        if state is None:
            said.append(f"There is no slot {source.slot}.")
        elif not state.is_of(connection.info.dbname):
            raise ConfigError(
                f"The slot {source.slot} is {state.kind}, which no pipeline of this database made, so nothing was"
                " dropped.",
                hint="Check source.slot and the database in the DSN. `wal2lake slots drop` drops any slot by its name.",
            )
        else:
            if kept_log is not None:
                _require_its_server(connection, kept_log)
            connection.execute("SELECT pg_drop_replication_slot(%s)", [source.slot])
            said.append(f"Dropped the slot {source.slot}.")
    for sentence in said:
        say(sentence)


def _require_unused(config: Config) -> None:
    """Raise SlotInUseError while a process of ours works on the log."""
    storage = storage_at(config.log.path)
    for lock, who in ((WRITER_LOCK, "Capture"), (pipeline_lock(config.pipeline.name), "The pipeline")):
        if storage.is_locked(lock):
            hint = "Stop it first."
            raise SlotInUseError(f"{who} runs on the change log {storage.where}, so nothing was dropped.", hint=hint)


def _require_its_server(connection: Connection, log: Storage) -> None:
    """Raise LogMismatchError where the log's slot is another server's: this one is somebody else's of that name, or
    came here by pg_upgrade, and then the log is of no more use."""
    try:
        mine = read_document(log.get(IDENTITY), IDENTITY)["system_id"]
    except (OSError, LogCorruptError, KeyError):
        return  # none, or one that nobody can read
    if mine != (found := identify(connection).system_id):
        raise LogMismatchError(
            f"The change log {log.where} belongs to system_id {mine}, and this server is {found}, so nothing was"
            " dropped.",
            hint="Check source.dsn and log.path. After an upgrade of the server `wal2lake drop --with-log` drops both.",
        )


def _require_own(connection: Connection, publication: str) -> bool:
    """Whether there is such a publication. Raises RightsError for one that only others may drop."""
    sql = "SELECT pg_get_userbyid(pubowner), pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"
    row = connection.execute(sql, [publication]).fetchone()
    if row is not None and not row[1]:
        raise RightsError(
            f"The publication {publication} belongs to {row[0]}, so nothing was dropped.",
            hint="Leave out --with-publication, and have its owner run"
            f" DROP PUBLICATION {quote_identifier(publication)}; afterwards.",
        )
    return row is not None


def _ask_to_drop(slot: str, publication: str | None, log: str | None) -> None:
    what, lost = f"the slot {slot}", "in the change log" if log is None else "in the lake"
    if publication is not None:
        what += f" and the publication {publication}"
    if log is not None:
        what += f", and delete the change log {log}"
    try:
        agreed = typer.confirm(printable(f"Drop {what}? What is not {lost} yet is lost to this pipeline."))
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise InterruptedByUser("Interrupted; nothing was dropped.") from None
        raise ConfigError("drop asks first, and nobody answered.", hint="--yes drops without asking.") from None
    if not agreed:
        raise typer.Abort
