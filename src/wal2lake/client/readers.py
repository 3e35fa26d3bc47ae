"""What is read from a server and from where it goes on, without saying how one waits: logical, or physical.

A reader knows the command that begins its stream, makes items of what comes, and remembers up to where it has handed
them out: a new connection begins there. It checks that nothing was lost meanwhile, since the server would not say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap

from wal2lake.client.event_decoder import EventDecoder
from wal2lake.client.events import Event
from wal2lake.client.row_loader import text_adapters
from wal2lake.errors import ConfigError, LogMismatchError, ProtocolError, SlotExistsError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.catalog import check_publications
from wal2lake.postgres.exchange import PGconn, Row, reading_answer, rows
from wal2lake.postgres.replication import Replication, start_logical, start_physical
from wal2lake.postgres.waiting import Exchange
from wal2lake.wire.command_text import quote_string
from wal2lake.wire.commands import (
    CreateLogicalReplicationSlot,
    IdentifySystem,
    ReadReplicationSlot,
    StartLogicalReplication,
)
from wal2lake.wire.replication import XLogData, read_xlog_data

T_co = TypeVar("T_co", covariant=True)
_READ_SLOT_SINCE = 150000


class ReplicationReader(Protocol[T_co]):
    """``physical``: the kind of connection; ``delivered_lsn``: all before it was handed out; ``failure``: why no more
    can be; ``awaits``: a sentence on what opening waits for, where that may take long."""

    physical: bool
    awaits: str | None

    @property
    def delivered_lsn(self) -> LSN: ...

    @property
    def failure(self) -> Exception | None: ...

    def opening(self, pgconn: PGconn) -> Exchange[Replication]:
        """Begin, or go on, on a new connection."""

    def items(self, payloads: Iterable[bytes]) -> Iterator[T_co]:
        """What XLogData payloads hold."""

    def note_keepalive(self, wal_end: LSN, acknowledged: LSN) -> LSN:
        """All before ``wal_end`` has been handed out; what may be acknowledged thereby, if ``acknowledged`` was."""

    def continues_after(self, outcome: Sequence[Row]) -> bool:
        """The server ended the stream in order, with these rows; True when there is more elsewhere."""


@dataclass(frozen=True, slots=True)
class LogicalOptions:
    """What connect was given."""

    slot: str
    pgoutput: PgoutputOptions
    create_slot: bool = False
    start_lsn: LSN = LSN(0)  # noqa: RUF009 - immutable
    values: str = "python"
    adapters: AdaptersMap | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for what is not supported."""
        if self.pgoutput.streaming != "off" or self.pgoutput.two_phase:
            raise ConfigError(
                "connect gives whole transactions when they have committed; streaming and two_phase are not supported.",
                hint="Leave them out; LogicalStream (docs/live.md) has every message of every protocol version.",
            )
        if self.values not in ("python", "text"):
            raise ConfigError(f"values is 'python' or 'text', not {self.values!r}.")
        if not (self.adapters is None or isinstance(self.adapters, AdaptersMap)):
            raise ConfigError(
                "adapters is psycopg's AdaptersMap.", hint="AdaptersMap(psycopg.adapters) copies the global one."
            )
        if self.values == "text" and (self.adapters is not None or self.pgoutput.binary):
            raise ConfigError("values='text' takes neither adapters nor binary values.")

    @property
    def loaders(self) -> AdaptersMap:
        if self.values == "text":
            return text_adapters()
        return psycopg.adapters if self.adapters is None else self.adapters


class LogicalReader:
    """Events of a slot's publications."""

    physical = False
    awaits: str | None = None

    def __init__(self, options: LogicalOptions) -> None:
        self._options = options
        self._decoder = EventDecoder(options.pgoutput, options.loaders, options.start_lsn)
        self._create = options.create_slot
        self._cluster = _Cluster()

    @property
    def delivered_lsn(self) -> LSN:
        return self._decoder.delivered_lsn

    @property
    def failure(self) -> Exception | None:
        return self._decoder.failure

    def opening(self, pgconn: PGconn) -> Exchange[Replication]:
        options, version = self._options, pgconn.server_version
        plugin = options.pgoutput.build(version)
        yield from check_publications(pgconn, options.pgoutput.publication_names)
        self._cluster.check((yield from _identify(pgconn)), self.delivered_lsn)
        if self._create:
            self.awaits = (
                f"The slot {options.slot} is being made; it waits until the transactions that run now have ended."
            )
            with contextlib.suppress(SlotExistsError):
                yield from rows(pgconn, CreateLogicalReplicationSlot(options.slot, "pgoutput").build(version))
            self.awaits, self._create = None, False
        yield from self._check_slot(pgconn)
        command = StartLogicalReplication(options.slot, self.delivered_lsn, plugin).build(version)
        stream = yield from start_logical(pgconn, command)
        self._decoder.begin_connection()
        return stream

    def _check_slot(self, pgconn: PGconn) -> Exchange[None]:
        """Raise LogMismatchError when the slot is ahead of what was handed out: the server would begin there."""
        slot = self._options.slot
        where = f"WHERE slot_name = {quote_string(slot)}"
        found = yield from rows(pgconn, f"SELECT confirmed_flush_lsn FROM pg_catalog.pg_replication_slots {where}")
        with reading_answer("SELECT"):
            confirmed = LSN.parse(found[0][0]) if found and found[0][0] is not None else LSN(0)
        if 0 < self.delivered_lsn < confirmed:
            raise LogMismatchError(
                f"The slot {slot} stands at {confirmed}, ahead of {self.delivered_lsn}, where this stream was to go on:"
                " what lies between was acknowledged by somebody else.",
                hint="A slot serves one reader. Begin again from a copy of the tables.",
            )

    def items(self, payloads: Iterable[bytes]) -> Iterator[Event]:
        return self._decoder.decode(payloads)

    def note_keepalive(self, wal_end: LSN, acknowledged: LSN) -> LSN:
        """Behind the last change lies WAL without one: without this the slot of an idle publication would stand."""
        free = acknowledged >= self._decoder.pending_lsn and not self._decoder.in_transaction
        self._decoder.note_keepalive(wal_end)
        return wal_end if free else LSN(0)

    def continues_after(self, outcome: Sequence[Row]) -> bool:
        return False


class PhysicalReader:
    """The WAL itself, without a gap, from ``start_lsn`` (None: where the slot keeps it from, else where it ends now);
    ``timeline``: the one it is on there (None: the server's). Where a timeline ends it goes on with the next."""

    physical = True
    awaits: str | None = None
    failure: Exception | None = None

    def __init__(self, slot: str | None, start_lsn: LSN | None, timeline: int | None) -> None:
        self.delivered_lsn = start_lsn or LSN(0)
        self.timeline = timeline
        self._slot = slot
        self._cluster = _Cluster()

    def opening(self, pgconn: PGconn) -> Exchange[Replication]:
        identity = yield from _identify(pgconn)
        self._cluster.check(identity, self.delivered_lsn)
        if not self.delivered_lsn:
            self.delivered_lsn = (yield from self._slot_position(pgconn)) or identity.wal_lsn
        self.timeline = self.timeline or identity.timeline
        return (yield from start_physical(pgconn, self.delivered_lsn, self._slot, self.timeline))

    def _slot_position(self, pgconn: PGconn) -> Exchange[LSN | None]:
        if self._slot is None or pgconn.server_version < _READ_SLOT_SINCE:
            return None
        found = yield from rows(pgconn, ReadReplicationSlot(self._slot).build(pgconn.server_version))
        with reading_answer("READ_REPLICATION_SLOT"):
            restart_lsn = found[0][1] if found else None
            return None if restart_lsn is None else LSN.parse(restart_lsn)

    def items(self, payloads: Iterable[bytes]) -> Iterator[XLogData]:
        for payload in payloads:
            message = read_xlog_data(payload)
            if message.start_lsn != self.delivered_lsn:
                self.failure = ProtocolError(
                    "The WAL that came does not follow the WAL before it.", lsn=message.start_lsn
                )
                raise self.failure
            self.delivered_lsn = message.start_lsn + len(message.payload)
            yield message

    def note_keepalive(self, wal_end: LSN, acknowledged: LSN) -> LSN:
        return LSN(0)

    def continues_after(self, outcome: Sequence[Row]) -> bool:
        if not outcome or outcome[0][0] is None:
            return False
        with reading_answer("START_REPLICATION"):
            self.timeline = int(outcome[0][0])
        return True


class _Identity(NamedTuple):
    system_id: str
    timeline: int
    wal_lsn: LSN


class _Cluster:
    """The cluster that a stream belongs to, known from its first connection."""

    def __init__(self) -> None:
        self._system_id: str | None = None

    def check(self, identity: _Identity, delivered: LSN) -> None:
        """Raise LogMismatchError for another cluster, and for one whose WAL ends before what it has sent."""
        if self._system_id not in (None, identity.system_id):
            raise LogMismatchError("The server is another cluster than before.", hint="Check host and port in the DSN.")
        self._system_id = identity.system_id
        if identity.wal_lsn < delivered:
            raise LogMismatchError(
                f"The server's WAL ends at {identity.wal_lsn}, before {delivered}, up to where it was read: the server"
                " was taken back to an earlier state.",
                hint="Begin again from a copy of what it has now.",
            )


def _identify(pgconn: PGconn) -> Exchange[_Identity]:
    found = yield from rows(pgconn, IdentifySystem().build(pgconn.server_version))
    with reading_answer("IDENTIFY_SYSTEM"):
        system_id, timeline, wal_lsn = found[0][:3]
        return _Identity(str(system_id), int(str(timeline)), LSN.parse(str(wal_lsn)))
