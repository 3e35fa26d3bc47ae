"""`wal2lake recv`: pg_recvlogical's job. Whatever can be refused is refused before the server is changed.

So the options are put together first, then the output is opened, then the server is asked whether it knows them; only
then is a slot made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import typer

from wal2lake.cli.options import with_dsn
from wal2lake.cli.output import say
from wal2lake.cli.recv_options import (
    Binary,
    Create,
    Drop,
    Failover,
    File,
    Format,
    FromOrigin,
    FsyncInterval,
    MessageFormat,
    Messages,
    Options,
    Plugin,
    ProtoVersion,
    Publications,
    PythonPlugin,
    Start,
    StartLsn,
    Streaming,
    TwoPhase,
    pgoutput_options,
)
from wal2lake.cli.shared import (
    RECONNECT_S,
    IfNotExists,
    NoLoop,
    Slot,
    StatusInterval,
    UntilLsn,
    load_local_plugin,
    making_slot,
    pairs,
    refuse,
    say_waiting,
    waiting_for_transactions,
)
from wal2lake.decoding.context import Writer
from wal2lake.decoding.decoder import Decoder
from wal2lake.errors import ConfigError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions, quote_publication_names
from wal2lake.postgres.catalog import require_publications
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.live_catalog import LiveCatalog
from wal2lake.postgres.logical import PluginOptions
from wal2lake.postgres.outputs import STDOUT, JsonLinesOutput, RawOutput
from wal2lake.postgres.plugin_output import PluginOutput, json_output
from wal2lake.postgres.recvlogical import RecvOptions
from wal2lake.postgres.recvlogical import recv as receive
from wal2lake.postgres.slots import create_slot, drop_slot
from wal2lake.signals import stop_on_signals

EXAMPLE = "Example: wal2lake recv mine --create-slot --if-not-exists --publication shop --format json"

_NAME = "wal2lake recv"
_PGOUTPUT = "pgoutput"
_OF_CREATION = ("if_not_exists", "failover")
_OF_PGOUTPUT = ("publication", "proto_version", "binary", "messages", "streaming", "origin")
_OF_STREAM = (
    *_OF_PGOUTPUT,
    *("python_plugin", "option", "message_format", "file"),
    *("start_lsn", "until_lsn", "status_interval", "fsync_interval", "no_loop"),
)


@with_dsn
def recv(
    context: typer.Context,
    slot: Slot,
    dsn: Dsn,
    create: Create = False,
    if_not_exists: IfNotExists = False,
    failover: Failover = False,
    drop: Drop = False,
    start: Start = None,
    plugin: Plugin = _PGOUTPUT,
    python_plugin: PythonPlugin = None,
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
    _check_options(context, plugin, create, drop, start)
    if drop:
        _drop(dsn, slot)
        return
    if python_plugin is not None and plugin != _PGOUTPUT:
        raise ConfigError(
            "--python-plugin decodes pgoutput's stream, and --plugin names another.", hint="Leave --plugin out."
        )
    own, further = pairs(option), pairs(None if python_plugin else option)
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
    with ExitStack() as opened:
        if python_plugin is not None and isinstance(options, PgoutputOptions):
            catalog = opened.enter_context(closing(LiveCatalog(dsn)))
            decoding = _Decoding(python_plugin, own, options, catalog, is_init=create)
            decoded = opened.enter_context(closing(_plugin_output(file, message_format, decoding)))
            with replication_connection(dsn, application_name=_NAME) as pgconn:
                decoded.decoder.adapt_to(pgconn.server_version)
            output: RawOutput = decoded
            options = decoded.decoder.stream
        else:
            output = opened.enter_context(closing(_output(file, message_format, options)))
        if create:
            _create(dsn, slot, options, made, if_not_exists)
        reconnect_s = None if no_loop else RECONNECT_S
        chosen = RecvOptions(start_lsn or LSN(0), until_lsn, options, status_interval, fsync_interval, reconnect_s)
        with stop_on_signals(output.signalled) as stop:
            receive(dsn, slot, output, chosen, stop, on_wait=say_waiting)


class _Decoding(NamedTuple):
    """Which plugin of ours decodes, and how."""

    plugin: str
    options: PluginOptions
    stream: PgoutputOptions
    catalog: LiveCatalog
    is_init: bool


def _plugin_output(file: str | None, message_format: MessageFormat, decoding: _Decoding) -> PluginOutput:
    """The plugin is started here, and refuses its options before the server hears of anything."""

    def make(write: Writer) -> Decoder:
        name, options, stream, catalog, is_init = decoding
        plugin = load_local_plugin(name)
        return Decoder(plugin, options, stream, write, is_init=is_init, catalog=catalog)

    output = PluginOutput(file or STDOUT, make, as_json=message_format is MessageFormat.JSON)
    if output.decoder.plugin_options.receive_rewrites:
        say("pgoutput never carries rewrites: what the plugin asked for with receive_rewrites has no effect.")
    return output


def _check_options(context: typer.Context, plugin: str, create: bool, drop: bool, start: bool | None) -> None:
    """Make, drop and stream exclude each other as in pg_recvlogical, and each has its own options; so has pgoutput."""
    if plugin != _PGOUTPUT:
        own = _OF_PGOUTPUT if create else (*_OF_PGOUTPUT, "two_phase")
        refuse(context, own, f"is an option of pgoutput, not of {plugin}.", "Give the plugin's own by -o NAME=VALUE.")
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


def _drop(dsn: Dsn, slot: str) -> None:
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        drop_slot(pgconn, slot)
    say(f"Dropped the slot {slot}.")


def _create(
    dsn: Dsn, slot: str, options: PgoutputOptions | PluginOptions, made: Mapping[str, Any], if_not_exists: bool
) -> None:
    """Make the slot, unless the server does not know, or does not have, what will be asked of it."""
    with replication_connection(dsn, application_name=_NAME) as pgconn:
        if isinstance(options, PgoutputOptions):
            options.check(pgconn.server_version)
            require_publications(pgconn, options.publication_names)
        with making_slot(slot, if_not_exists=if_not_exists):
            create_slot(pgconn, slot, while_waiting=waiting_for_transactions(slot), **made)


def _output(file: str | None, message_format: MessageFormat, options: PgoutputOptions | PluginOptions) -> RawOutput:
    pgoutput = isinstance(options, PgoutputOptions)
    if message_format is MessageFormat.JSON:
        path = file or STDOUT
        return json_output(path, options) if isinstance(options, PgoutputOptions) else JsonLinesOutput(path)
    if pgoutput and file is None and sys.stdout.isatty():
        raise ConfigError(
            "pgoutput's messages are binary, and standard output is a terminal.",
            hint="Read them with --format json, or name a file with --file.",
        )
    return RawOutput(file or STDOUT)
