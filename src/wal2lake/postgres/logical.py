"""One logical replication connection, read by who takes no longer than wal_sender_timeout between two calls.

``acknowledge`` is the only thing that moves the slot: what is flushed is what the caller says is durable; until it has
said anything the server is told 0/0, also where ``start_lsn`` is ahead of the slot. The rest is kept for it: status
goes out every ``status_interval_s`` and whenever the server asks (when exactly, and why: replication.py), from within
``receive``; so whoever needs longer uses ThreadedLogicalStream, whose thread reads ahead (read_ahead.py), or
`wal2lake.connect`.

Behind the last change lies WAL without one, which only a keepalive tells of. Who iterates does not see it; so there,
once the caller has acknowledged all changes that came before a keepalive, the keepalive's WAL end is acknowledged too
(why it may be: replication.py). Who uses ``receive`` does that, or has the slot lag and a server that stops wait.

Source: PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION … LOGICAL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from wal2lake.arguments import as_lsn, as_name, as_options, as_seconds
from wal2lake.errors import Wal2LakeError
from wal2lake.login import Dsn, as_login
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, Received
from wal2lake.postgres.catalog import require_publications
from wal2lake.postgres.connection import connect_replication
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.read_ahead import ReadAhead
from wal2lake.postgres.replication import FAREWELL_S, STATUS_INTERVAL_S, Replication, start_logical
from wal2lake.postgres.waiting import Exchange, wait
from wal2lake.wire.commands import StartLogicalReplication
from wal2lake.wire.replication import PrimaryKeepalive, ServerMessage, XLogData, read_from_server

_TICK_S = 1.0
_BUFFER_BYTES = 16 << 20

PluginOptions = tuple[tuple[str, str | None], ...]
GivenOptions = Mapping[str, str | None] | Sequence[tuple[str, str | None]]


class DecodedChange(NamedTuple):
    """A pgoutput message, the LSN it came with, and its transaction (None outside of any)."""

    lsn: LSN
    received: Received


class LogicalStream:
    """A context manager over START_REPLICATION … LOGICAL; iterating gives XLogData until the server ends the stream.

    ``plugin_options`` are pgoutput's (PgoutputOptions: checked against the server's version) or any plugin's, as a
    mapping or pairs. Raises ConfigError for arguments of a wrong kind. Entering raises what map_error says:
    SlotMissingError, SlotInUseError, SlotLostError, RightsError, …; and PublicationError when one of PgoutputOptions'
    publications is missing now. One that was missing when a row was changed has ``receive`` raise it, when all before
    that change has been returned, on every version of the server.
    """

    def __init__(
        self,
        dsn: Dsn,
        slot: str,
        start_lsn: LSN = LSN(0),  # noqa: B008 - immutable
        plugin_options: PgoutputOptions | GivenOptions = (),
        *,
        status_interval_s: float = 10.0,
    ) -> None:
        self.slot = as_name(slot, "slot")
        self._dsn = as_login(dsn)
        self._start_lsn = as_lsn(start_lsn, "start_lsn")
        self._options = (
            plugin_options
            if isinstance(plugin_options, PgoutputOptions)
            else as_options(plugin_options, "plugin_options")
        )
        self._interval_s = as_seconds(status_interval_s, "status_interval_s")
        self._stream: Replication

    def __enter__(self) -> Self:
        pgconn = connect_replication(self._dsn, application_name="wal2lake")
        try:
            version = pgconn.server_version
            if isinstance(self._options, PgoutputOptions):
                require_publications(pgconn, self._options.publication_names)
            given = self._options.build(version) if isinstance(self._options, PgoutputOptions) else self._options
            command = StartLogicalReplication(self.slot, self._start_lsn, given).build(version)
            self._stream = wait(self._start(pgconn, command), pgconn.socket)
        except BaseException:
            pgconn.finish()
            raise
        return self

    def _start(self, pgconn: PGconn, command: str) -> Exchange[Replication]:
        return start_logical(pgconn, command, interval_s=self._interval_s)

    def __exit__(self, *failure: object) -> None:
        with contextlib.suppress(Wal2LakeError):  # what had to be said of the stream was raised in the block
            if not self.ended:
                wait(self._stream.finish(FAREWELL_S), self._stream.frames.fileno())
        self._stream.frames.close()

    @property
    def ended(self) -> bool:
        """The server has ended the stream; ``finish`` tells whether by an error."""
        return self._stream.ended

    @property
    def reply_requested(self) -> bool:
        """The server waits for an answer, which the next ``receive`` gives."""
        return self._stream.reply_requested

    @property
    def received_lsn(self) -> LSN:
        """How far what has come reaches, keepalives included."""
        return self._stream.written

    @property
    def flushed_lsn(self) -> LSN:
        """What was acknowledged."""
        return self._stream.flushed

    def receive(self, timeout_s: float = _TICK_S) -> list[ServerMessage]:
        """What has come, keepalives included, in order; waits up to ``timeout_s`` for a first message.

        ``reply_requested`` then says whether the server waits for an answer.
        """
        payloads = wait(self._stream.receive(timeout_s), self._stream.frames.fileno())
        return [read_from_server(payload) for payload in payloads]

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
        self._stream.acknowledge(flushed)

    def send_status(self) -> None:
        """Tell the server now how far we are."""
        wait(self._stream.send_status(), self._stream.frames.fileno())

    def finish(self) -> None:
        """End the stream in order, after a last status; raises the error that ended it, if one did."""
        wait(self._stream.finish(), self._stream.frames.fileno())


class ThreadedLogicalStream(LogicalStream):
    """LogicalStream for who may take longer than wal_sender_timeout between two calls: a thread reads ahead, at most
    16 MiB, and answers the server. Statuses go out at least every third of wal_sender_timeout, and at once
    when something was acknowledged. ``receive`` tells of several keepalives as of one, behind what came before it; it
    raises what ends the stream, also where the server ended it in order (StreamEndedError).
    """

    def _start(self, pgconn: PGconn, command: str) -> Exchange[Replication]:
        return start_logical(pgconn, command, most_s=self._interval_s or STATUS_INTERVAL_S)

    def __enter__(self) -> Self:
        super().__enter__()
        self._ahead, self._keepalive_lsn = ReadAhead(self._stream, _BUFFER_BYTES), LSN(0)
        return self

    def __exit__(self, *failure: object) -> None:
        self._ahead.close()

    @property
    def ended(self) -> bool:
        """Never here: ``receive`` raises instead, when all that came has been returned."""
        return False

    @property
    def reply_requested(self) -> bool:
        """The server asked for an answer, which it had, amid what was received last."""
        return self._ahead.reply_requested

    def receive(self, timeout_s: float = _TICK_S) -> list[ServerMessage]:
        """What has come; see LogicalStream."""
        messages: list[ServerMessage] = list(map(read_from_server, self._ahead.receive(timeout_s)))
        if self._ahead.keepalive_lsn > self._keepalive_lsn:
            self._keepalive_lsn = self._ahead.keepalive_lsn
            messages.append(PrimaryKeepalive(self._keepalive_lsn, 0, self._ahead.reply_requested))
        return messages

    def acknowledge(self, flushed: LSN) -> None:
        """Everything before ``flushed`` is durable; the server hears of it at once, and may forget it."""
        self._ahead.acknowledge(flushed)

    def send_status(self) -> None:
        """Nothing to do: the thread does."""

    def finish(self) -> None:
        """Nothing to do: leaving the block ends the stream in order."""


def decoded(changes: Iterable[XLogData], options: PgoutputOptions) -> Iterator[DecodedChange]:
    """The typed messages of one pgoutput stream, from a LogicalStream or a slot's SQL functions alike.

    Raises ProtocolError with the LSN for what pgoutput does not send.
    """
    session = PgoutputSession(options)
    for change in changes:
        received = session.receive(change.payload, change.start_lsn)
        if not received.of_nothing:
            yield DecodedChange(LSN(change.start_lsn), received)
