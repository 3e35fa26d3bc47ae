"""Before a byte is read: slot and log must belong together, or capture refuses and says what to do.

PostgreSQL itself would not object. It starts a stream that asks for less than the slot has at the slot's position,
silently, so changes that the log never got would be missing for ever; and it knows nothing of the log.

Nothing here opens a published table: capture must resume while an ALTER, a VACUUM FULL or a LOCK holds one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import NamedTuple

from wal2lake.capture.history import Resent, check_wal_end
from wal2lake.capture.timeline import step_to
from wal2lake.changelog.documents import read_document, write_document
from wal2lake.changelog.events import Events
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import SLOT
from wal2lake.changelog.writer import LogWriter
from wal2lake.columnar.headers import MessageColumns
from wal2lake.config import Config
from wal2lake.errors import (
    BEGIN_ANEW,
    ConnectError,
    InterruptedByUser,
    LogMismatchError,
    ServerConfigError,
    SlotMissingError,
    Wal2LakeError,
)
from wal2lake.login import Login
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Begin, Commit
from wal2lake.pgoutput.options import OPTION_SINCE, PROTO_VERSION_SINCE, STREAMING_PROTO_VERSION
from wal2lake.postgres.catalog import SystemIdentity, identify, require_publication
from wal2lake.postgres.connection import Connection, connect, mapped_errors, replication_connection
from wal2lake.postgres.findings import Finding
from wal2lake.postgres.one_server import STANDBY_CURE, pinned, require_one
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.postgres.slots import (
    SlotState,
    SlotUnfinishedError,
    alter_slot,
    create_slot,
    missing_slot,
    require_slot,
    slot_state,
)
from wal2lake.retry import retry_while_in_use
from wal2lake.wire.command_text import quote_identifier

PLUGIN_OPTIONS = {"proto_version": "1"}
STREAMING_OPTIONS = {"proto_version": "2", "streaming": "on"}
TWO_PHASE_OPTIONS = {"proto_version": "3", "two_phase": "on"}  # it marks the slot, if that is not done yet
_FAILOVER_SINCE = 170000
PATIENCE_S = 10.0  # for whoever had the slot or the log before to end

logger = logging.getLogger("wal2lake.capture")


def open_log(config: Config, stop: Event, slot_waits: Callable[[], None]) -> LogWriter:
    """The log of ``config``, locked for writing; made now, with its slot, when there is none yet.

    ``slot_waits`` is called about once a second while the slot's making waits for transactions to end.
    Raises LogMismatchError, SlotLostError, SlotInUseError, SlotUnfinishedError, PublicationError, and what connecting
    raises. A slot that exists without a log is taken over where it stands if capture died between making the two, or if
    there is nothing in the lake that had its changes from a log that is lost.
    """
    storage = storage_at(config.log.path)
    made = not ChangeLog.exists(storage)
    identity = _new_identity(config, stop, slot_waits) if made else ChangeLog.open(storage).identity
    opened = retry_while_in_use(
        lambda: LogWriter(storage, identity, compression=config.log.compression), PATIENCE_S, stop
    )
    storage.remove(SLOT)
    if made:
        text = f"The change log {storage.where} begins at {identity.start_lsn}."
        Events(opened.log.storage, "capture").record("log_created", text, lsn=identity.start_lsn)
    return opened


class Source(NamedTuple):
    """The server, with its version (server_version_num), and where the slot stands. ``login`` leads there again."""

    login: Login
    system: SystemIdentity
    version: int
    confirmed: LSN

    @property
    def can_stream(self) -> bool:
        """It knows how to send transactions in progress."""
        return self.version >= PROTO_VERSION_SINCE[STREAMING_PROTO_VERSION["on"]]


def check_source(config: Config, writer: LogWriter, stop: Event) -> Source:
    """Check that the slot can be streamed from and continues ``writer``'s log.

    Where the server was promoted, the log is of its timeline from then on. Nothing of that is recorded before all else
    fits: who pointed to a promoted copy by mistake can go back.
    Raises as open_log does, and SlotMissingError.
    """
    log = writer.log
    with connect(config.source.login, application_name="wal2lake capture") as connection:
        require_one(config.source.login, connection.pgconn)
        login = pinned(config.source.login, connection.pgconn)
        _require_known(config, connection)
        require_publication(connection, config.source.publication)
        system = identify(connection)
        log.check_identity(_identity(config, system, log.start_lsn))
        step = step_to(login, log, system)
        check_wal_end(connection, system.wal_lsn, step.bounded(writer.durable_lsn))
        try:
            state = _free_slot(connection, config.source.slot, stop)
        except SlotMissingError as error:
            raise _slot_gone_error(config.source.slot, log, system) from error
        writer.catch_up()  # who streamed from it until now may have appended
        _require_own(connection, state)
        _check_slot(state, log.identity)
        confirmed = check_position(state, step.bounded(writer.durable_lsn))
        version = connection.info.server_version
    _see_to_failover(config, login, state)
    step.take(writer)
    return Source(login, system, version, confirmed)


def check_started(login: Login, slot: str, durable: LSN) -> LSN:
    """Look at the slot once more when the stream runs: from here on nobody else can move it. Return where it stands."""
    with connect(login, application_name="wal2lake capture") as connection:
        state = slot_state(connection, slot)
    if state is None:
        raise missing_slot(slot)
    return check_position(state, durable)


def check_position(state: SlotState, durable: LSN) -> LSN:
    """Where the slot stands; LogMismatchError when the server has forgotten changes that the log does not have."""
    confirmed = state.confirmed_flush_lsn or LSN(0)
    if confirmed > durable:
        raise LogMismatchError(
            f"The slot {state.slot_name} stands at {confirmed}, ahead of the change log, which ends at {durable}:"
            " changes between them are lost to the log.",
            hint="If an older copy of the log was restored, restore the newest. Otherwise every table must be read"
            f" again: {BEGIN_ANEW}.",
        )
    return confirmed


def require_slot_at(connection: Connection, slot: str, log: ChangeLog, system: SystemIdentity, lsn: LSN) -> None:
    """Raise SlotMissingError or LogMismatchError unless a log that ends at ``lsn`` could go on by the slot."""
    state = slot_state(connection, slot)
    if state is None:
        raise _slot_gone_error(slot, log, system)
    _check_slot(state, log.identity)
    check_position(state, lsn)


def change_log_findings(config: Config) -> list[Finding]:
    """For `wal2lake check`: whether the change log, if there is one, belongs to the server and to its present history.

    Where the slot is free and stands before the log's end, the server is asked what it would send again. Moves nothing.
    """
    try:
        if not ChangeLog.exists(config.log.path):
            return list(_lost_log_findings(config))
        log = ChangeLog.open(config.log.path)
        durable = log.durable_lsn()
        with connect(config.source.login, application_name="wal2lake check") as connection:
            system = identify(connection)  # after the log was looked at: the log follows the server
            log.check_identity(_identity(config, system, log.start_lsn))
            durable = step_to(config.source.login, log, system).bounded(durable)
            check_wal_end(connection, system.wal_lsn, durable)
            state = slot_state(connection, config.source.slot)
            if state is None:
                raise _slot_gone_error(config.source.slot, log, system)
            if not state.active and not state.lost and check_position(state, durable) < durable:
                _compare_history(connection, state, log, durable, config.source.publication)
    except Wal2LakeError as error:
        return [Finding("change_log", "error", str(error))]
    return [Finding("change_log", "ok", f"The change log ends at {durable}, and is of this server.")]


def _lost_log_findings(config: Config) -> Iterator[Finding]:
    try:
        with connect(config.source.login, application_name="wal2lake check") as connection:
            if slot_state(connection, config.source.slot) is not None:
                _require_no_lost_log(config, identify(connection))
    except Wal2LakeError as error:
        yield Finding("change_log", "error", str(error))


def _compare_history(connection: Connection, state: SlotState, log: ChangeLog, durable: LSN, publication: str) -> None:
    resent = Resent(log, durable, check_position(state, durable))
    options = (*PLUGIN_OPTIONS.items(), ("publication_names", quote_identifier(publication)))
    changes = slot_changes(connection, state.slot_name, peek=True, upto_lsn=durable, plugin_options=options)
    bounds = [(c.start_lsn, c.payload) for c in changes if c.payload[:1] in (Begin.tag, Commit.tag)]
    resent.pass_over(MessageColumns.of(bounds), durable)


def _new_identity(config: Config, stop: Event, slot_waits: Callable[[], None]) -> LogIdentity:
    with connect(config.source.login, application_name="wal2lake capture") as connection:
        require_one(config.source.login, connection.pgconn)
        if _is_standby(connection):
            raise ServerConfigError("The server is a standby: a pipeline begins on the primary.", hint=STANDBY_CURE)
        _require_known(config, connection)
        require_publication(connection, config.source.publication)
        system = identify(connection)
        state = slot_state(connection, config.source.slot)
        if state is None:
            storage = storage_at(config.log.path)
            storage.prepare(".")
            storage.put(SLOT, write_document(_making(config, system)))  # a crash before there is a log leaves this
            login = pinned(config.source.login, connection.pgconn)
            return _identity(config, system, _make_slot(config, login, stop, slot_waits))
        _require_no_lost_log(config, system)
        try:
            state = _free_slot(connection, config.source.slot, stop)
        except SlotMissingError as error:
            raise SlotUnfinishedError(f"The slot {config.source.slot} went away while it was looked at.") from error
    _require_own(connection, state)
    identity = _identity(config, system, state.confirmed_flush_lsn or LSN(0))
    _check_slot(state, identity)
    text = f"The slot {config.source.slot} exists and has no change log: taking it over."
    Events(config.log.path, "capture").record("slot_taken_over", text, level="warning", slot=config.source.slot)
    return identity


def _making(config: Config, system: SystemIdentity) -> dict[str, str]:
    return {"slot": config.source.slot, "system_id": str(system.system_id)}


def _require_no_lost_log(config: Config, system: SystemIdentity) -> None:
    """Raise LogMismatchError for a slot of which the log seems to be lost, and with it what the lake does not have yet.

    Not all that was acknowledged need be in the tables, and the slot does not send it again.
    """
    storage = storage_at(config.log.path)
    with suppress(FileNotFoundError):
        if read_document(storage.get(SLOT), SLOT) == _making(config, system):
            return
    if "://" not in config.lake.path and next(Path(config.lake.path).glob("*/*/"), None) is not None:
        raise LogMismatchError(
            f"The slot {config.source.slot} exists, its change log {storage.where} does not, and the lake"
            f" {config.lake.path} has tables: changes that the log had, and the tables do not have, are lost.",
            hint="Put the log's folder back, or point log.path at where it is now. If it is lost, run `wal2lake drop`,"
            " then `wal2lake run`: the tables are copied anew. If they are another pipeline's, give this one a"
            " lake.path of its own.",
        )


def _make_slot(config: Config, login: Login, stop: Event, slot_waits: Callable[[], None]) -> LSN:
    def while_waiting() -> None:
        if stop.is_set():
            raise InterruptedByUser("Stopped while the replication slot was being made.")
        slot_waits()

    with replication_connection(login, application_name="wal2lake capture") as pgconn:
        source = config.source
        created = create_slot(
            pgconn,
            source.slot,
            two_phase=source.two_phase,
            failover=source.failover,
            while_waiting=while_waiting,
        )
        return created.consistent_point


def _identity(config: Config, system: SystemIdentity, start_lsn: LSN) -> LogIdentity:
    return LogIdentity(
        system_id=str(system.system_id),
        timeline=system.timeline,
        database=system.dbname or "",
        slot=config.source.slot,
        publication=config.source.publication,
        start_lsn=start_lsn,
        options=PLUGIN_OPTIONS,
    )


def _free_slot(connection: Connection, name: str, stop: Event) -> SlotState:
    """require_slot, with patience for the walsender of a connection that broke, until wal_sender_timeout ends it.

    One that goes on hearing from its client serves somebody else; a single reply may be what was still under way.
    """
    replies: set[object] = set()

    def ask() -> SlotState:
        replies.update(_reply_times(connection, name))
        return require_slot(connection, name)

    patience = PATIENCE_S + _wal_sender_timeout_s(connection)
    return retry_while_in_use(ask, patience, stop, hopeless=lambda: len(replies) > 2)


def _reply_times(connection: Connection, name: str) -> list[object]:
    """When the slot's walsender last heard from its client; nothing if that is not known, or not ours to see."""
    query = (
        "SELECT r.reply_time FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid"
        " WHERE s.slot_name = %s AND r.reply_time IS NOT NULL"
    )
    with mapped_errors():
        return [reply for (reply,) in connection.execute(query, [name])]


def _wal_sender_timeout_s(connection: Connection) -> float:
    with mapped_errors():
        row = connection.execute("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'").fetchone()
    assert row is not None
    return int(row[0]) / 1000


def _check_slot(state: SlotState, identity: LogIdentity) -> None:
    if not state.is_of(identity.database):
        raise LogMismatchError(
            f"The slot {state.slot_name} is {state.kind}; capture needs one of database {identity.database} and plugin"
            " pgoutput.",
            hint="Choose another name for source.slot, or drop that slot.",
        )


def _require_own(connection: Connection, state: SlotState) -> None:
    """Raise ConnectError for a standby's copy of the primary's slot: it can be used when the standby is promoted."""
    if not state.synced:
        return
    if _is_standby(connection):
        raise ConnectError(
            f"The server is a standby, and its slot {state.slot_name} follows the primary's until it is promoted.",
            hint="Where source.dsn names several hosts, let it say target_session_attrs=read-write.",
        )


def _is_standby(connection: Connection) -> bool:
    with mapped_errors():
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return row is not None and bool(row[0])


def _require_known(config: Config, connection: Connection) -> None:
    """Raise ServerConfigError for a setting that the server's version cannot fulfil."""
    version, two_phase_since = connection.info.server_version, OPTION_SINCE["two_phase"]
    if config.source.two_phase and version < two_phase_since:
        raise ServerConfigError(
            f"source.two_phase needs PostgreSQL {two_phase_since // 10000}: the server is {version // 10000}.",
            hint="Set source.two_phase to false: what is prepared is read at its COMMIT PREPARED then.",
        )
    if config.source.failover and version < _FAILOVER_SINCE:
        raise ServerConfigError(
            f"source.failover needs PostgreSQL {_FAILOVER_SINCE // 10000}: the server is {version // 10000}, whose"
            " standbys keep no slot in step.",
            hint="Set source.failover to false; after a promotion every table is read again (docs/moving.md).",
        )


def _see_to_failover(config: Config, login: Login, state: SlotState) -> None:
    """Have standbys keep the slot in step from now on, where that is wanted; the slot is free."""
    if config.source.failover and not state.failover:
        with replication_connection(login, application_name="wal2lake capture") as pgconn:
            alter_slot(pgconn, config.source.slot, failover=True)
        logger.info("Standbys that synchronize slots keep the slot %s in step from now on.", config.source.slot)


def _slot_gone_error(slot: str, log: ChangeLog, system: SystemIdentity) -> SlotMissingError:
    if system.timeline > log.identity.timeline:
        return SlotMissingError(
            f"The server was promoted, and has no replication slot {slot}: it was made without failover, or no standby"
            " had it in step in time.",
            hint=f"What happened since the promotion is unknown, so every table must be read again: {BEGIN_ANEW}.",
        )
    return SlotMissingError(
        f"The replication slot {slot} does not exist any more, but the change log {log.storage.where} continues it.",
        hint=f"What happened since it was dropped is unknown, so every table must be read again: {BEGIN_ANEW}.",
    )
