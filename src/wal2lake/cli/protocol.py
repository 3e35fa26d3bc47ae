"""The protocol's own commands: thin shells over wal2lake.postgres, named and behaving as PostgreSQL's programs.

Errors leave as Wal2LakeError; whoever runs the application prints them and exits with their code.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from wal2lake.cli.options import resolve
from wal2lake.errors import ConfigError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions, Streaming
from wal2lake.postgres import slots as slot_api
from wal2lake.postgres.basebackup import BackupOptions, Progress, base_backup
from wal2lake.postgres.catalog import identify as identify_system
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.logical import PluginOptions
from wal2lake.postgres.outputs import JsonLinesOutput, RawOutput
from wal2lake.postgres.receivewal import ReceiveWalOptions, receive_wal
from wal2lake.postgres.recv import RecvOptions
from wal2lake.postgres.recv import recv as receive
from wal2lake.postgres.system import show, timeline_history, wal_segment_size

_PANEL = "The replication protocol by itself"

app = typer.Typer(help="PostgreSQL's replication protocol, command by command.", no_args_is_help=True)
slots_app = typer.Typer(help="Replication slots: list, create, read, alter, drop, advance, copy.", no_args_is_help=True)


def _configured(dsn: str) -> str:
    """Without the flag: the environment's or wal2lake.toml's source.dsn, else '' (libpq's own variables)."""
    return dsn or resolve().source.dsn


Dsn = Annotated[
    str, typer.Option("--dsn", callback=_configured, help="libpq keywords or URI; else wal2lake.toml, PGHOST, …")
]
Slot = Annotated[str, typer.Argument(help="The slot's name.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
StartLsn = Annotated[
    LSN | None, typer.Option(parser=LSN.parse, metavar="LSN", help="Begin here; without it where the slot stands.")
]
UntilLsn = Annotated[LSN | None, typer.Option(parser=LSN.parse, metavar="LSN", help="End here; without it at Ctrl-C.")]
StatusInterval = Annotated[float, typer.Option(min=0, help="Seconds between status messages; 0: only when asked.")]
NoLoop = Annotated[bool, typer.Option("--no-loop", help="Do not connect again when the connection is lost.")]


class MessageFormat(StrEnum):
    RAW = "raw"
    JSON = "json"


class StreamingMode(StrEnum):
    OFF = "off"
    ON = "on"
    PARALLEL = "parallel"


class BackupFormat(StrEnum):
    PLAIN = "plain"
    TAR = "tar"


class Checkpoint(StrEnum):
    FAST = "fast"
    SPREAD = "spread"


@app.command(rich_help_panel=_PANEL)
def recv(
    slot: Slot,
    dsn: Dsn = "",
    create: Annotated[bool, typer.Option("--create-slot", help="Make the slot first.")] = False,
    drop: Annotated[bool, typer.Option("--drop-slot", help="Drop the slot instead.")] = False,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Stream.")] = True,
    plugin: Annotated[str, typer.Option(help="The output plugin, for --create-slot and for the format.")] = "pgoutput",
    publication: Annotated[list[str] | None, typer.Option(help="pgoutput: a publication; may be repeated.")] = None,
    proto_version: Annotated[int, typer.Option(min=1, max=4, help="pgoutput's protocol version.")] = 1,
    binary: Annotated[bool, typer.Option("--binary", help="pgoutput: values in binary format.")] = False,
    messages: Annotated[bool, typer.Option("--messages", help="pgoutput: logical decoding messages too.")] = False,
    streaming: Annotated[StreamingMode, typer.Option(help="pgoutput: transactions in progress.")] = StreamingMode.OFF,
    two_phase: Annotated[
        bool, typer.Option("--two-phase", help="Prepared transactions when they are prepared.")
    ] = False,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="NAME[=VALUE] for another plugin.")] = None,
    message_format: Annotated[
        MessageFormat, typer.Option("--format", help="raw: as it comes; json: an object a message.")
    ] = MessageFormat.RAW,
    file: Annotated[str, typer.Option("--file", "-f", help="Appended to; - is standard output.")] = "-",
    start_lsn: StartLsn = None,
    until_lsn: UntilLsn = None,
    status_interval: StatusInterval = 10,
    fsync_interval: Annotated[
        float, typer.Option(min=0, help="Seconds between syncs of the output; 0: only at the end.")
    ] = 10,
    no_loop: NoLoop = False,
) -> None:
    """Stream a logical slot into a file: pg_recvlogical's job."""
    if plugin == "pgoutput" and start and not (publication or drop):
        raise ConfigError("pgoutput needs at least one publication.", hint="Name it with --publication.")
    with replication_connection(dsn, application_name="wal2lake recv") as pgconn:
        if drop:
            slot_api.drop_slot(pgconn, slot)
            return
        if create:
            slot_api.create_slot(pgconn, slot, plugin=plugin, two_phase=two_phase)
    if not start:
        return
    options: PgoutputOptions | PluginOptions = _pairs(option)
    if plugin == "pgoutput":
        mode: Streaming = streaming.value
        options = PgoutputOptions(tuple(publication or ()), proto_version, binary, messages, mode, two_phase)
    decode = options if isinstance(options, PgoutputOptions) else None
    output = RawOutput(file) if message_format is MessageFormat.RAW else JsonLinesOutput(file, decode)
    with closing(output), _stop_on_signals() as stop:
        chosen = RecvOptions(
            start_lsn or LSN(0), until_lsn, options, status_interval, fsync_interval, None if no_loop else 5.0
        )
        receive(dsn, slot, output, chosen, stop)


@app.command(rich_help_panel=_PANEL)
def basebackup(
    target: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    dsn: Dsn = "",
    backup_format: Annotated[
        BackupFormat, typer.Option("--format", help="plain: a data directory.")
    ] = BackupFormat.PLAIN,
    checkpoint: Annotated[Checkpoint, typer.Option(help="fast: at once, at the server's cost.")] = Checkpoint.SPREAD,
    label: Annotated[str, typer.Option(help="Stands in backup_label.")] = "wal2lake base backup",
    no_wal: Annotated[bool, typer.Option("--no-wal", help="Leave out the WAL that the backup needs.")] = False,
    max_rate: Annotated[int | None, typer.Option(help="kB/s, 32 to 1048576.")] = None,
    incremental: Annotated[Path | None, typer.Option(help="The backup_manifest to build on (17+).")] = None,
    manifest_checksums: Annotated[str, typer.Option(help="SHA224 to SHA512; CRC32C or NONE: sizes only.")] = "SHA256",
    tablespace_mapping: Annotated[list[str] | None, typer.Option("-T", help="OLDDIR=NEWDIR, for plain format.")] = None,
    no_sync: Annotated[bool, typer.Option("--no-sync", help="Do not wait until all is durable.")] = False,
    no_clean: Annotated[bool, typer.Option("--no-clean", help="After a failure, keep what had come.")] = False,
    progress: Annotated[bool, typer.Option("--progress", "-P", help="Show how far it is.")] = False,
    as_json: Json = False,
) -> None:
    """Copy the whole cluster and check the copy against its manifest: pg_basebackup's job."""
    options = BackupOptions(
        backup_format.value,
        label,
        checkpoint.value,
        not no_wal,
        max_rate,
        manifest_checksums,
        incremental,
        _mapping(tablespace_mapping),
        not no_sync,
        not no_clean,
    )
    with closing(_Percent()) as percent:
        backup = base_backup(dsn, target, options, on_progress=percent if progress else None)
    _print({**asdict(backup), "start_lsn": str(backup.start_lsn), "end_lsn": str(backup.end_lsn)}, as_json)


@app.command(rich_help_panel=_PANEL)
def receivewal(
    folder: Annotated[Path, typer.Argument(help="Where the segments go; goes on after those that are there.")],
    dsn: Dsn = "",
    slot: Annotated[str | None, typer.Option(help="A physical slot that keeps the WAL we need.")] = None,
    until_lsn: UntilLsn = None,
    synchronous: Annotated[bool, typer.Option("--synchronous", help="Sync and acknowledge at once.")] = False,
    status_interval: StatusInterval = 10,
    no_loop: NoLoop = False,
) -> None:
    """Receive WAL as segment files, across promotions: pg_receivewal's job."""
    options = ReceiveWalOptions(slot, until_lsn, synchronous, status_interval, None if no_loop else 5.0)
    with _stop_on_signals() as stop:
        end = receive_wal(dsn, folder, options, stop, on_segment=typer.echo)
    typer.echo(f"durable up to {end.lsn} on timeline {end.timeline}")


@app.command(rich_help_panel=_PANEL)
def identify(dsn: Dsn = "", as_json: Json = False) -> None:
    """Say which cluster this is: system identifier, timeline and its history, WAL position, version."""
    with replication_connection(dsn, application_name="wal2lake identify") as pgconn:
        identity = identify_system(pgconn)
        switches = timeline_history(pgconn, identity.timeline).switches if identity.timeline > 1 else ()
        facts = {
            "system_id": identity.system_id,
            "timeline": identity.timeline,
            "timeline_history": [f"{s.timeline} until {s.lsn}: {s.reason}" for s in switches],
            "wal_lsn": str(identity.wal_lsn),
            "dbname": identity.dbname,
            "server_version": show(pgconn, "server_version"),
            "wal_segment_size": wal_segment_size(pgconn),
        }
    _print(facts, as_json)


@slots_app.command("list")
def slots_list(dsn: Dsn = "", as_json: Json = False) -> None:
    """All slots of the cluster, as pg_replication_slots has them."""
    with closing(connect(dsn, application_name="wal2lake slots")) as connection:
        states = [_shown(asdict(state)) for state in slot_api.slot_states(connection)]
    if as_json:
        typer.echo(json.dumps(states))
        return
    for state in states:
        typer.echo("  ".join(f"{name}={value}" for name, value in state.items() if value not in (None, False)))


@slots_app.command("create")
def slots_create(
    slot: Slot,
    dsn: Dsn = "",
    plugin: Annotated[str, typer.Option(help="The output plugin of a logical slot.")] = "pgoutput",
    physical: Annotated[bool, typer.Option("--physical", help="A physical slot.")] = False,
    reserve_wal: Annotated[bool, typer.Option("--reserve-wal", help="Physical: keep WAL from now on.")] = False,
    two_phase: Annotated[bool, typer.Option("--two-phase", help="Decode prepared transactions (15+).")] = False,
    failover: Annotated[bool, typer.Option("--failover", help="Synchronise to standbys (17+).")] = False,
    as_json: Json = False,
) -> None:
    """Make a slot; a logical one waits for every running transaction."""
    with replication_connection(dsn, application_name="wal2lake slots") as pgconn:
        if physical:
            created = slot_api.create_physical_slot(pgconn, slot, reserve_wal=reserve_wal)
        else:
            created = slot_api.create_slot(
                pgconn, slot, plugin=plugin, two_phase=two_phase, failover=failover, while_waiting=_Waiting(slot)
            )
    _print(_shown(asdict(created)), as_json)


@slots_app.command("read")
def slots_read(slot: Slot, dsn: Dsn = "", as_json: Json = False) -> None:
    """READ_REPLICATION_SLOT of a physical slot (15+)."""
    with replication_connection(dsn, application_name="wal2lake slots") as pgconn:
        found = slot_api.read_slot(pgconn, slot)
    if found is None:
        raise slot_api.missing_slot(slot)
    _print(_shown(asdict(found)), as_json)


@slots_app.command("alter")
def slots_alter(
    slot: Slot,
    dsn: Dsn = "",
    failover: Annotated[bool | None, typer.Option("--failover/--no-failover", help="17+.")] = None,
    two_phase: Annotated[bool | None, typer.Option("--two-phase/--no-two-phase", help="18+.")] = None,
) -> None:
    """Change a logical slot that nobody uses."""
    with replication_connection(dsn, application_name="wal2lake slots") as pgconn:
        slot_api.alter_slot(pgconn, slot, failover=failover, two_phase=two_phase)


@slots_app.command("drop")
def slots_drop(
    slot: Slot, dsn: Dsn = "", wait: Annotated[bool, typer.Option("--wait", help="Until it is free.")] = False
) -> None:
    """Drop a slot; the server may forget the WAL that it kept."""
    with replication_connection(dsn, application_name="wal2lake slots") as pgconn:
        slot_api.drop_slot(pgconn, slot, wait=wait)


@slots_app.command("advance")
def slots_advance(
    slot: Slot,
    upto_lsn: Annotated[LSN, typer.Argument(parser=LSN.parse, metavar="LSN", help="Where to.")],
    dsn: Dsn = "",
) -> None:
    """Move a slot forward without reading: what lies before is lost to it."""
    with closing(connect(dsn, application_name="wal2lake slots")) as connection:
        typer.echo(slot_api.advance_slot(connection, slot, upto_lsn))


@slots_app.command("copy")
def slots_copy(
    slot: Slot, new_slot: Annotated[str, typer.Argument(help="The new slot's name.")], dsn: Dsn = ""
) -> None:
    """Make a new slot that stands exactly where SLOT stands."""
    with closing(connect(dsn, application_name="wal2lake slots")) as connection:
        typer.echo(slot_api.copy_slot(connection, slot, new_slot))


app.add_typer(slots_app, name="slots", rich_help_panel=_PANEL)


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM end the stream in order."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Percent:
    """Says on standard error how far a backup is, whenever the percentage changes; a terminal sees one line."""

    def __init__(self) -> None:
        self._shown = -1
        self._terminal = sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        percent = min(100, 100 * progress.received // max(1, progress.total))
        if percent != self._shown:
            self._shown = percent
            text = f"{progress.received >> 10} of about {progress.total >> 10} kB ({percent} %)"
            typer.echo(f"\r{text}" if self._terminal else text, nl=not self._terminal, err=True)

    def close(self) -> None:
        """End the line."""
        if self._terminal and self._shown >= 0:
            typer.echo(err=True)


class _Waiting:
    """Say once why nothing happens."""

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self._said = False

    def __call__(self) -> None:
        if not self._said:
            self._said = True
            typer.echo(f"Slot {self._slot} waits for the transactions that run now to end …", err=True)


def _pairs(options: Sequence[str] | None) -> PluginOptions:
    pairs = [option.partition("=") for option in options or ()]
    if any(not name for name, _, _ in pairs):
        raise ConfigError("An option is NAME=VALUE or NAME.")
    return tuple((name, value if equals else None) for name, equals, value in pairs)


def _mapping(folders: Sequence[str] | None) -> dict[str, str]:
    mapping = {}
    for old, new in _pairs(folders):
        if not new:
            raise ConfigError(f"-T {old} names no new folder.", hint="Write OLDDIR=NEWDIR.")
        mapping[old] = new
    return mapping


def _shown(values: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, LSN) else value for name, value in values.items()}


def _print(values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(values))
        return
    for name, value in values.items():
        typer.echo(f"{name:<18}{'' if value is None else value}")
