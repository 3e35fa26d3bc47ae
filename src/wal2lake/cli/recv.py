"""`wal2lake recv`: pg_recvlogical's job. Whatever can be refused is refused before the server is changed.

So the options are put together first, then the output is opened, then the server is asked whether it knows them; only
then is a slot made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from enum import StrEnum
from typing import Annotated, Any

import typer

from wal2lake.cli.options import with_dsn
from wal2lake.cli.output import say
from wal2lake.cli.shared import (
    RECONNECT_S,
    IfNotExists,
    NoLoop,
    Slot,
    StatusInterval,
    UntilLsn,
    making_slot,
    pairs,
    refuse,
    say_waiting,
    stop_on_signals,
    waiting_for_transactions,
)
from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions, quote_publication_names
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.logical import PluginOptions
from wal2lake.postgres.outputs import STDOUT, JsonLinesOutput, RawOutput
from wal2lake.postgres.recv import RecvOptions
from wal2lake.postgres.recv import recv as receive
from wal2lake.postgres.slots import create_slot, drop_slot

EXAMPLE = "Example: wal2lake recv mine --create-slot --if-not-exists --publication shop --format json"

_PGOUTPUT = "pgoutput"
_OF_CREATION = ("if_not_exists", "failover")
_OF_PGOUTPUT = ("publication", "proto_version", "binary", "messages", "streaming", "origin")
_OF_STREAM = (
    *_OF_PGOUTPUT,
    *("option", "message_format", "file", "start_lsn", "until_lsn", "status_interval", "fsync_interval", "no_loop"),
)
_NEWEST_PROTO_VERSION = "4"


class MessageFormat(StrEnum):
    RAW = "raw"
    JSON = "json"


class StreamingMode(StrEnum):
    OFF = "off"
    ON = "on"
    PARALLEL = "parallel"


class Origin(StrEnum):
    ANY = "any"
    NONE = "none"


Create = Annotated[bool, typer.Option("--create-slot", help="Make the slot first.")]
Failover = Annotated[
    bool, typer.Option("--failover", help="With --create-slot: standbys keep the slot in step (17 and later).")
]
Drop = Annotated[bool, typer.Option("--drop-slot", help="Drop the slot instead.")]
Start = Annotated[
    bool | None, typer.Option("--start/--no-start", help="Stream, which is the default but for --drop-slot.")
]
Plugin = Annotated[
    str, typer.Option("--plugin", "-P", help="The output plugin that the slot has, or is made with by --create-slot.")
]
Publications = Annotated[list[str] | None, typer.Option(help="pgoutput: a publication; may be repeated.")]
ProtoVersion = Annotated[
    int | None,
    typer.Option(min=1, max=4, help="pgoutput: the protocol version; without it the lowest that the options need."),
]
Binary = Annotated[bool, typer.Option("--binary", help="pgoutput: values in binary format (14 and later).")]
Messages = Annotated[
    bool, typer.Option("--messages", help="pgoutput: what pg_logical_emit_message wrote as well (14 and later).")
]
Streaming = Annotated[
    StreamingMode | None,
    typer.Option(
        help="pgoutput: on sends large transactions while they run (14 and later), parallel also what applying "
        "them in parallel needs (16 and later); off, the default, sends each when it commits."
    ),
]
FromOrigin = Annotated[
    Origin | None, typer.Option(help="pgoutput: none leaves out what was replicated to the server (16 and later).")
]
TwoPhase = Annotated[
    bool,
    typer.Option(
        "--two-phase", "-t", help="Send a prepared transaction at its PREPARE, not at COMMIT PREPARED (15 and later)."
    ),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="NAME=VALUE or NAME, for the plugin; may be repeated.")
]
Format = Annotated[MessageFormat, typer.Option("--format", help="raw: as it comes; json: an object a message.")]
File = Annotated[str | None, typer.Option("--file", "-f", help="Appended to; without it, or by -, standard output.")]
StartLsn = Annotated[
    LSN | None,
    typer.Option(
        "--start-lsn",
        "--startpos",
        "-I",
        parser=LSN.parse,
        metavar="LSN",
        help="Begin here, not where the slot stands.",
    ),
]
FsyncInterval = Annotated[
    float,
    typer.Option("--fsync-interval", "-F", min=0, help="Seconds between syncs of the output; 0: only at the end."),
]


@with_dsn
def recv(
    context: typer.Context,
    slot: Slot,
    dsn: str,
    create: Create = False,
    if_not_exists: IfNotExists = False,
    failover: Failover = False,
    drop: Drop = False,
    start: Start = None,
    plugin: Plugin = _PGOUTPUT,
    publication: Publications = None,
    proto_version: ProtoVersion = None,
    binary: Binary = False,
    messages: Messages = False,
    streaming: Streaming = None,
    origin: FromOrigin = None,
    two_phase: TwoPhase = False,
    option: Options = None,
    message_format: Format = MessageFormat.RAW,
    file: File = None,
    start_lsn: StartLsn = None,
    until_lsn: UntilLsn = None,
    status_interval: StatusInterval = 10,
    fsync_interval: FsyncInterval = 10,
    no_loop: NoLoop = False,
) -> None:
    """Stream a logical slot into a file: pg_recvlogical's job."""
    _check_actions(context, create, drop, start)
    _check_plugin(context, plugin, create)
    if drop:
        _drop(dsn, slot)
        return
    further = pairs(option)
    options: PgoutputOptions | PluginOptions = further
    if start is not False and plugin == _PGOUTPUT:
        flags = {
            "publication_names": quote_publication_names(publication or ()),
            "proto_version": proto_version,
            "binary": binary,
            "messages": messages,
            "streaming": streaming,
            "origin": origin,
            "two_phase": two_phase,
        }
        options = pgoutput_options(flags, further)
    made = {"plugin": plugin, "two_phase": two_phase, "failover": failover}
    if start is False:
        _create(dsn, slot, options, made, if_not_exists)
        return
    with closing(_output(file, message_format, options)) as output:
        if create:
            _create(dsn, slot, options, made, if_not_exists)
        reconnect_s = None if no_loop else RECONNECT_S
        chosen = RecvOptions(start_lsn or LSN(0), until_lsn, options, status_interval, fsync_interval, reconnect_s)
        with stop_on_signals() as stop:
            receive(dsn, slot, output, chosen, stop, on_wait=say_waiting)


def _check_actions(context: typer.Context, create: bool, drop: bool, start: bool | None) -> None:
    """Make, drop and stream exclude each other as in pg_recvlogical, and each has its own options."""
    if drop and create:
        raise ConfigError("--create-slot and --drop-slot exclude each other.", hint="Run one, then the other.")
    if drop:
        if start:
            raise ConfigError("--start and --drop-slot exclude each other.", hint="Run one, then the other.")
        refuse(context, (*_OF_CREATION, *_OF_STREAM, "plugin", "two_phase"), "has no effect with --drop-slot.")
        return
    if start is False:
        if not create:
            raise ConfigError("--no-start leaves nothing to do.", hint="It belongs to --create-slot.")
        refuse(context, _OF_STREAM, "has no effect with --no-start.", "Give it when you stream.")
    if not create:
        refuse(context, _OF_CREATION, "has no effect without --create-slot.")


def _check_plugin(context: typer.Context, plugin: str, create: bool) -> None:
    if plugin != _PGOUTPUT:
        own = _OF_PGOUTPUT if create else (*_OF_PGOUTPUT, "two_phase")
        refuse(context, own, f"is an option of pgoutput, not of {plugin}.", "Give the plugin's own by -o NAME=VALUE.")


def _drop(dsn: str, slot: str) -> None:
    with replication_connection(dsn, application_name="wal2lake recv") as pgconn:
        drop_slot(pgconn, slot)
    say(f"Dropped the slot {slot}.")


def _create(
    dsn: str, slot: str, options: PgoutputOptions | PluginOptions, made: Mapping[str, Any], if_not_exists: bool
) -> None:
    """Make the slot, unless the server does not know what will be asked of it."""
    with replication_connection(dsn, application_name="wal2lake recv") as pgconn:
        if isinstance(options, PgoutputOptions):
            options.check(pgconn.server_version)
        with making_slot(slot, if_not_exists=if_not_exists):
            create_slot(pgconn, slot, while_waiting=waiting_for_transactions(slot), **made)


def pgoutput_options(flags: Mapping[str, Any], further: PluginOptions) -> PgoutputOptions:
    """pgoutput's options from flags and -o alike, checked alike; raises ConfigError in the flags' terms."""
    asked: dict[str, str | None] = {name: str(value).lower() for name, value in flags.items() if value}
    asked["publication_names"] = flags["publication_names"]
    for name, value in further:
        if asked.get(name):
            raise ConfigError(f"{name} is given twice.", hint="Say it once, by its flag or by -o.")
        asked[name] = value
    if not asked["publication_names"]:
        raise ConfigError("pgoutput needs at least one publication.", hint="Name it with --publication.")
    if "proto_version" not in asked:
        needed = _parsed({**asked, "proto_version": _NEWEST_PROTO_VERSION}).least_proto_version
        asked["proto_version"] = str(needed)
    return _parsed(asked)


def _parsed(asked: Mapping[str, str | None]) -> PgoutputOptions:
    try:
        return PgoutputOptions.parse(asked.items())
    except ProtocolError as error:
        too_low = "Leave --proto-version out: then it is the lowest that the options need."
        hint = too_low if error.hint else "`wal2lake recv --help` has pgoutput's; --plugin names another plugin."
        raise ConfigError(error.message, hint=hint) from None


def _output(
    file: str | None, message_format: MessageFormat, options: PgoutputOptions | PluginOptions
) -> RawOutput | JsonLinesOutput:
    decode = options if isinstance(options, PgoutputOptions) else None
    if message_format is MessageFormat.JSON:
        return JsonLinesOutput(file or STDOUT, decode)
    if decode is not None and file is None and sys.stdout.isatty():
        raise ConfigError(
            "pgoutput's messages are binary, and standard output is a terminal.",
            hint="Read them with --format json, or name a file with --file.",
        )
    return RawOutput(file or STDOUT)
