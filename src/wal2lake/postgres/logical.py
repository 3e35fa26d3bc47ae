"""One logical replication connection: messages of the output plugin in, positions out.

``acknowledge`` is the only thing that moves the slot: what is flushed is what the caller says is durable; until it has
said anything the server is told 0/0, also where ``start_lsn`` is ahead of the slot. The rest is kept for it: status
goes out every ``status_interval_s`` and whenever the server asks, from within ``receive``; so whoever needs longer than
wal_sender_timeout between two calls must work in another thread.

A server's question is answered by the call of ``receive`` after the one that returned it, so that what was acknowledged
in between is in the answer: a server that stops asks until all it has sent is, and does not end before.

Behind the last change lies WAL without one, which only a keepalive tells of. Who iterates does not see it; so there,
once the caller has acknowledged all changes that came before a keepalive, the keepalive's WAL end is acknowledged too
(why it may be: stream.py). Who uses ``receive`` does that, or has the slot lag and a server that stops wait.

Source: PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION … LOGICAL.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, Received
from wal2lake.postgres.catalog import require_publications
from wal2lake.postgres.connection import connect_replication
from wal2lake.postgres.walsender import CopyBoth, now_timestamptz
from wal2lake.wire.commands import StartLogicalReplication
from wal2lake.wire.replication import (
    PrimaryKeepalive,
    ServerMessage,
    StandbyStatusUpdate,
    XLogData,
    read_from_server,
    write_standby_status_update,
)

_TICK_S = 1.0

PluginOptions = tuple[tuple[str, str | None], ...]


class DecodedChange(NamedTuple):
    """A pgoutput message, the LSN it came with, and its transaction (None outside of any)."""

    lsn: LSN
    received: Received


class LogicalStream:
    """A context manager over START_REPLICATION … LOGICAL; iterating gives XLogData until the server ends the stream.

    ``plugin_options`` are pgoutput's (PgoutputOptions: checked against the server's version) or any plugin's, as
    pairs. Entering raises what map_error says: SlotMissingError, SlotInUseError, SlotLostError, RightsError, …; and
    PublicationError when one of PgoutputOptions' publications is missing now. One that was missing when a row was
    changed has ``receive`` raise it, when all before that change has been returned, on every version of the server.
    """

    def __init__(
        self,
        dsn: str,
        slot: str,
        start_lsn: LSN = LSN(0),  # noqa: B008 - immutable
        plugin_options: PgoutputOptions | PluginOptions = (),
        *,
        status_interval_s: float = 10.0,
    ) -> None:
        self.slot = slot
        self.received_lsn = LSN(0)
        self.flushed_lsn = LSN(0)
        self.reply_requested = False
        self._dsn = dsn
        self._start_lsn = start_lsn
        self._options = plugin_options
        self._interval_s = status_interval_s
        self._status_sent = time.monotonic()

    def __enter__(self) -> Self:
        pgconn = connect_replication(self._dsn, application_name="wal2lake")
        try:
            version = pgconn.server_version
            if isinstance(self._options, PgoutputOptions):
                require_publications(pgconn, self._options.publication_names)
            given = self._options.build(version) if isinstance(self._options, PgoutputOptions) else self._options
            command = StartLogicalReplication(self.slot, self._start_lsn, given)
            self._copy = CopyBoth(pgconn, command.build(version))
        except BaseException:
            pgconn.finish()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self._copy.pgconn.finish()

    @property
    def ended(self) -> bool:
        """The server has ended the stream; ``finish`` tells whether by an error."""
        return self._copy.ended

    def receive(self, timeout_s: float = _TICK_S) -> list[ServerMessage]:
        """What has come, keepalives included, in order; waits up to ``timeout_s`` for a first message.

        ``reply_requested`` then says whether the server waits for an answer.
        """
        due = 0 < self._interval_s <= time.monotonic() - self._status_sent
        if (self.reply_requested or due) and not self.ended:
            self.send_status()
        messages = [read_from_server(payload) for payload in self._copy.receive(timeout_s)]
        for message in messages:
            if isinstance(message, PrimaryKeepalive):
                self.reply_requested |= message.reply_requested
                self.received_lsn = max(self.received_lsn, LSN(message.wal_end))
            else:
                self.received_lsn = max(self.received_lsn, LSN(message.start_lsn))
        return messages

    def __iter__(self) -> Iterator[XLogData]:
        last = LSN(0)
        while not self.ended:
            for message in self.receive():
                if isinstance(message, XLogData):
                    last = max(last, LSN(message.start_lsn))
                    yield message
                elif 0 < self.flushed_lsn >= last:
                    self.acknowledge(LSN(message.wal_end))
        self.finish()

    def acknowledge(self, flushed: LSN) -> None:
        """Everything before ``flushed`` is durable; the server hears of it with the next status, and may forget it."""
        self.flushed_lsn = max(self.flushed_lsn, flushed)

    def send_status(self) -> None:
        """Tell the server now how far we are."""
        status = StandbyStatusUpdate(self.received_lsn, self.flushed_lsn, LSN(0), now_timestamptz(), False)
        self._copy.send(write_standby_status_update(status))
        self._status_sent = time.monotonic()
        self.reply_requested = False

    def finish(self) -> None:
        """End the stream in order, after a last status; raises the error that ended it, if one did."""
        if not self.ended:
            self.send_status()
        self._copy.finish()


def decoded(changes: Iterable[XLogData], options: PgoutputOptions) -> Iterator[DecodedChange]:
    """The typed messages of one pgoutput stream, from a LogicalStream or a slot's SQL functions alike.

    Raises ProtocolError with the LSN for what pgoutput does not send.
    """
    session = PgoutputSession(options)
    for change in changes:
        received = session.receive(change.payload, change.start_lsn)
        if not received.of_nothing:
            yield DecodedChange(LSN(change.start_lsn), received)
