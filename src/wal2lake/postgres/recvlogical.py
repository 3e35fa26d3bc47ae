"""pg_recvlogical's job: a logical slot's messages into an output, acknowledged only when the output is durable.

Positions, as pg_recvlogical keeps them. *Written* follows every message's start LSN and every keepalive's WAL end:
all before it is in the output. *Flushed* is *written* at the last sync, and the only thing that is acknowledged; an
output that holds something back bounds it. A
keepalive's WAL end may count because the walsender sends one only after all that it had to send before it. What has
come is handed on at once, so that readers see it; it is synced by the clock, and when the server asks for a reply: a
server that stops asks until *flushed* is what it has sent. Without a clock, handed on counts as flushed. Both are 0/0,
which moves nothing, until something has come: where to start says nothing of what is here.

An output that runs a plugin of ours may take longer over a row than the server waits for a sign of life: for it a
thread reads ahead and answers. What comes of a batch is handed on and synced in its midst too, for it may take hours.

After a lost connection streaming goes on from *flushed*: what came after it, a transaction cut in two included, comes
again and then stands twice in the output. Whoever needs it once uses the change log.

Source: PostgreSQL documentation, "pg_recvlogical"; src/bin/pg_basebackup/pg_recvlogical.c.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

from wal2lake.errors import Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.logical import GivenOptions, LogicalStream, ThreadedLogicalStream
from wal2lake.postgres.reconnect import OnWait, Reconnect
from wal2lake.postgres.replication import stopped_before
from wal2lake.retry import Backoff
from wal2lake.wire.replication import PrimaryKeepalive, ServerMessage, XLogData

_FLUSH_S = 1.0  # while a batch is worked on


class Output(Protocol):
    """Where messages go. ``computes``: a message may take longer than wal_sender_timeout."""

    computes: bool

    @property
    def hold_lsn(self) -> LSN | None:
        """Nothing beyond this may be acknowledged yet, although it was written; None: no bound."""

    def begin_stream(self) -> None:
        """A new connection begins: forget what the last one announced."""

    def write(self, message: XLogData) -> None:
        """Take one message of the output plugin."""

    def flush(self) -> None:
        """Hand on what was written: whoever reads the output sees it."""

    def sync(self) -> None:
        """Return when all that was written is durable."""


@dataclass(frozen=True, slots=True)
class RecvOptions:
    """``start_lsn`` 0/0: where the slot stands. ``until_lsn``: end after the message with exactly this LSN, or before
    the first one beyond it. Intervals in seconds; status 0: when asked, fsync 0: at the end, and what was handed on
    counts as durable. ``reconnect_s``: pause before a lost connection is opened again, None: never."""

    start_lsn: LSN = LSN(0)  # noqa: RUF009 - immutable
    until_lsn: LSN | None = None
    plugin_options: PgoutputOptions | GivenOptions = ()
    status_interval_s: float = 10.0
    fsync_interval_s: float = 10.0
    reconnect_s: float | None = 5.0


def recv(
    dsn: Dsn,
    slot: str,
    output: Output,
    options: RecvOptions | None = None,
    stop: threading.Event | None = None,
    *,
    on_wait: OnWait | None = None,
) -> LSN:
    """Stream ``slot`` into ``output`` until ``until_lsn`` or ``stop``; return the LSN up to which it is durable (0/0:
    nothing came).

    ``on_wait`` hears why the connection was lost and in how many seconds it is tried again. Raises what map_error
    says; ConnectError only while nothing has been streamed or when ``reconnect_s`` is None; InterruptedByUser when
    ``stop`` came before ``until_lsn`` was reached.
    """
    receiver = _Receiver(output, options or RecvOptions(), stop or threading.Event(), on_wait)
    while not receiver.done:
        receiver.run(dsn, slot)
    receiver.require_reached()
    return receiver.flushed


class _Receiver:
    def __init__(
        self,
        output: Output,
        options: RecvOptions,
        stop: threading.Event,
        on_wait: OnWait | None,
    ) -> None:
        self.written = self.flushed = LSN(0)
        self._output = output
        self._options = options
        self._stop = stop
        backoff = None if options.reconnect_s is None else Backoff(options.reconnect_s)
        self._reconnect = Reconnect(backoff, on_wait)
        self._reached = False
        self._synced = self._flushed_at = time.monotonic()

    @property
    def done(self) -> bool:
        return self._reached or self._stop.is_set()

    def run(self, dsn: Dsn, slot: str) -> None:
        """One connection's life; returns when there should be another, or none any more."""
        options = self._options
        begin = max(options.start_lsn, self.flushed)
        kind = ThreadedLogicalStream if self._output.computes else LogicalStream
        stream = kind(dsn, slot, begin, options.plugin_options, status_interval_s=options.status_interval_s)
        try:
            with stream:
                self._reconnect.opened()
                self._output.begin_stream()
                self._pump(stream)
        except Wal2LakeError as error:
            if not self.done or not self._reconnect.can_retry(error):
                self._stop.wait(self._reconnect.pause_after(error))

    def require_reached(self) -> None:
        """Raise InterruptedByUser when the output ends before it should: nobody may take it for whole."""
        until = self._options.until_lsn
        if until is not None and not self._reached:
            raise stopped_before(until)

    def _pump(self, stream: LogicalStream) -> None:
        try:
            while not self.done and not stream.ended:
                for message in stream.receive():
                    self._take(message)
                    if self.done:
                        break
                    if time.monotonic() - self._flushed_at >= _FLUSH_S:
                        self._flush_and_acknowledge(stream)
                self._flush_and_acknowledge(stream)
        except KeyboardInterrupt:  # out of a plugin that was at work
            if not self._stop.is_set():
                raise
        except Wal2LakeError:
            self._sync(stream)  # what is durable need not come again: leaving the stream says so
            raise
        self._sync(stream)
        stream.finish()

    def _take(self, message: ServerMessage) -> None:
        until = self._options.until_lsn
        if isinstance(message, PrimaryKeepalive):
            self.written = max(self.written, message.wal_end)
            self._reached = until is not None and message.wal_end >= until
        elif until is not None and message.start_lsn > until:
            self._reached = True
        else:
            self._output.write(message)
            self.written = max(self.written, message.start_lsn)
            self._reached = message.start_lsn == until

    def _flush_and_acknowledge(self, stream: LogicalStream) -> None:
        """After each batch, and in the midst of a long one: hand on what is written, acknowledge what may be."""
        self._output.flush()
        self._flushed_at = time.monotonic()
        interval_s = self._options.fsync_interval_s
        if not interval_s:
            self._acknowledge(stream)
        elif stream.reply_requested or time.monotonic() - self._synced >= interval_s:
            self._sync(stream)

    def _sync(self, stream: LogicalStream) -> None:
        self._output.sync()
        self._synced = time.monotonic()
        self._acknowledge(stream)

    def _acknowledge(self, stream: LogicalStream) -> None:
        hold = self._output.hold_lsn
        self.flushed = self.written if hold is None else max(self.flushed, min(self.written, hold))
        stream.acknowledge(self.flushed)
