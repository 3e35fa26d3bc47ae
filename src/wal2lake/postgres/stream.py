"""The replication stream: a thread of its own reads, keeps the connection alive and reports; the caller only takes.

Three positions must never be mixed up, and this is the file that could.

*Written* is what has arrived here. The server uses it for statistics only.

*Flushed* is the only position that moves the slot: below it the server may forget, for ever. It is set by
``acknowledge`` and by nothing else, never derived from what arrived. After a transaction it is ``Commit.end_lsn``: the
server sends a transaction again exactly when its commit record starts at or above the flushed position
(SnapBuildXactNeedsSkip in snapbuild.c), so an end LSN skips that transaction and no other.

*A keepalive's WAL end* is the server's read position: every commit record below it has been decoded, and what the
publication wanted of it was sent before the keepalive on the same connection. So once all data that came before it
is durable the position itself may be acknowledged, although no transaction ended there; on a server whose published
tables are idle this is the only thing that lets the slot advance. A keepalive can come inside a large transaction;
then its WAL end lies at or before that transaction's commit record, and the rule still holds.

The server ends a connection that is silent for wal_sender_timeout. It asks in good time, by a keepalive with a reply
request, but the request waits behind the data: a client that stops reading never sees it. Therefore the thread answers
requests at once, and besides reports by the clock, at least every third of wal_sender_timeout, also while it does
not read because the caller is slow. A walsender that waits for room in the socket still takes reports.

Resuming: START_REPLICATION below confirmed_flush_lsn begins at confirmed_flush_lsn without a word (since 14), so the
position is compared before and after the start by the caller, who knows what it has.

A warning that the server goes on without what was asked for ends the stream, as an error would (notices.py).

Source: PostgreSQL documentation, "Streaming Replication Protocol"; src/backend/replication/walsender.c.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

import psycopg
from psycopg import pq

from wal2lake.errors import ConnectError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.coalesce import Coalescer
from wal2lake.postgres.connection import PGconn, connect_replication, execute, refusal, start, wait_readable
from wal2lake.postgres.errors import connection_lost, map_error
from wal2lake.wire.command_text import quote_identifier
from wal2lake.wire.commands import start_replication_logical
from wal2lake.wire.replication import StandbyStatusUpdate, read_primary_keepalive, write_standby_status_update

STATUS_INTERVAL_S = 10.0
_FAREWELL_S = 2.0  # for the server to take the last report
_PG_EPOCH_S = 946_684_800  # 2000-01-01 UTC in Unix time
_KEEPALIVE_BYTES = 18
_SHORT_READ = 8192  # bytes; less means that the socket is empty
_READS = 8  # of about 16 kB, before libpq's buffer is emptied; they make the buffer grow as well


class ReplicationStream:
    """START_REPLICATION … LOGICAL on a connection of its own. Use it as a context manager.

    ``options`` are the output plugin's besides publication_names. At most ``buffer_bytes`` (and one read more) wait
    here for the caller; then the server is left waiting. ``received_lsn``, ``wal_end``, ``messages`` and
    ``received_bytes`` are for reports.

    Raises what map_error says, on opening and later from ``receive``.
    """

    def __init__(
        self,
        dsn: str,
        slot: str,
        start_lsn: LSN,
        publication: str,
        options: Mapping[str, str | bool | int],
        *,
        buffer_bytes: int = 64 << 20,
    ) -> None:
        self.keepalive_lsn = LSN(0)
        self.received_lsn = self.wal_end = start_lsn
        self.messages = self.received_bytes = 0
        self._flushed = self._reported = start_lsn
        self._limit = buffer_bytes
        self._news = threading.Condition()
        self._ready: list[bytes] = []
        self._ready_bytes = self._wanted = 0
        self._keepalive = LSN(0)
        self._failure: Exception | None = None
        self._closing = False
        self._pgconn, self._interval_s = _open(dsn, slot, start_lsn, publication, options)
        self._coalescer = Coalescer(self._pgconn.socket)
        self._next_report = 0.0
        self._waker, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._run, name="wal2lake-stream", daemon=True)
        self._thread.start()

    def receive(self, timeout_s: float, at_least: int = 1) -> list[bytes]:
        """Whole XLogData CopyData payloads in order: ('w', 24 bytes header, message) each.

        Waits until ``at_least`` bytes are there or ``timeout_s`` is over, and returns what there is, perhaps nothing.
        ``keepalive_lsn`` then says what may be acknowledged once everything returned so far is durable.
        A failure of the stream is raised when all that came before it has been returned.
        """
        with self._news:
            self._wanted = min(at_least, self._limit)
            self._news.wait_for(self._enough, timeout_s)
            ready, self._ready, self._ready_bytes = self._ready, [], 0
            self.keepalive_lsn = self._keepalive
            if not ready and self._failure is not None:
                raise self._failure
        self._rouse()  # the thread may wait for room
        return ready

    def acknowledge(self, flushed: LSN) -> None:
        """Everything below ``flushed`` is durable here: the server may forget it. Never goes back."""
        if flushed > self._flushed:
            self._flushed = flushed
            self._rouse()

    @property
    def confirmed_lsn(self) -> LSN:
        """What the server was last told to be flushed."""
        return self._reported

    def close(self) -> None:
        """Tell the server the last acknowledged position, end the stream, close the connection."""
        self._closing = True
        self._rouse()
        self._thread.join()
        self._coalescer.close()
        self._pgconn.finish()
        for end in (self._waker, self._wake):
            os.close(end)

    def __enter__(self) -> ReplicationStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the reading thread; only it touches the connection

    def _run(self) -> None:
        try:
            while not self._closing:
                self._wait(flowing=self._read())
                self._report()
            self._say_farewell()
        except psycopg.Error as error:
            self._fail(connection_lost(str(error)))
        except Exception as error:  # noqa: BLE001 - nothing is lost: receive raises it in the caller's thread
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        with self._news:
            self._failure = error
            self._news.notify_all()

    def _enough(self) -> bool:
        return self._ready_bytes >= self._wanted or self._failure is not None

    def _read(self) -> bool:
        """Take what is there, while there is room; True when something came, so that more is to be expected."""
        came = False
        while self._ready_bytes < self._limit:
            size = self._drain()
            came = came or size > 0
            if size < _SHORT_READ:
                break
        return came

    def _drain(self) -> int:
        """Read what the socket has, some 100 kB at most, and take all whole messages; their size in bytes."""
        for _ in range(_READS):
            self._pgconn.consume_input()
        get, size = self._pgconn.get_copy_data, 0
        chunks: list[bytes] = []
        keepalives: list[bytes] = []
        while True:
            length, payload = get(1)
            if length > _KEEPALIVE_BYTES:
                chunks.append(payload)  # type: ignore[arg-type]  # bytes, whatever the annotation says
            elif length > 0:
                keepalives.append(bytes(payload))
            else:
                break
            size += length
        if (refused := refusal(self._pgconn)) is not None:
            raise refused  # changes are missing from here on: no keepalive behind it may be acknowledged
        if size:
            self._publish(chunks, keepalives, size)
        if length < 0:
            raise self._ended()
        return size

    def _publish(self, chunks: list[bytes], keepalives: list[bytes], size: int) -> None:
        """Hand over data and the keepalives among it at once: no keepalive may overtake data that came before it."""
        wal_end = max((self._keepalive_end(k) for k in keepalives), default=LSN(0))
        if chunks:
            self.messages += len(chunks)
            self.received_bytes += size
            self.received_lsn = max(self.received_lsn, LSN(int.from_bytes(chunks[-1][1:9], "big")))
        self.wal_end = max(self.wal_end, wal_end, self.received_lsn)
        with self._news:
            self._ready += chunks
            self._ready_bytes += size
            self._keepalive = max(self._keepalive, wal_end)
            if self._enough():
                self._news.notify_all()

    def _keepalive_end(self, payload: bytes) -> LSN:
        keepalive = read_primary_keepalive(payload)
        if keepalive.reply_requested:
            self._next_report = 0.0
        return keepalive.wal_end

    def _wait(self, *, flowing: bool) -> None:
        """Until there is something to do. Only after a read that brought nothing does a wait last: what TLS has
        decrypted already shows in no poll, but in the next read."""
        if flowing and self._ready_bytes < self._limit:
            self._coalescer.wait_for_more()
            return
        self._coalescer.expect_first_byte()
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if self._ready_bytes < self._limit:
            poll.register(self._pgconn.socket, select.POLLIN)
        for handle, _ in poll.poll(max(0.0, self._next_report - time.monotonic()) * 1000 + 1):
            if handle == self._waker:
                os.read(self._waker, 4096)

    def _rouse(self) -> None:
        with suppress(BlockingIOError):  # a full pipe rouses as well
            os.write(self._wake, b"!")

    def _report(self) -> None:
        """Send a status update if the position moved, one was asked for, or it is time."""
        now, flushed = time.monotonic(), self._flushed
        if flushed != self._reported or now >= self._next_report:
            sent = int((time.time() - _PG_EPOCH_S) * 1_000_000)
            update = StandbyStatusUpdate(max(self.received_lsn, flushed), flushed, flushed, sent, False)
            self._pgconn.put_copy_data(write_standby_status_update(update))
            self._reported, self._next_report = flushed, now + self._interval_s
        self._pgconn.flush()

    def _ended(self) -> Wal2LakeError:
        """Why the server left COPY mode: its error, or its shutdown."""
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return map_error(result)
        return ConnectError("The server ended the stream.", hint="It shuts down; the stream goes on when it is back.")

    def _say_farewell(self) -> None:
        """Without the server's answer to CopyDone the last report may be lost with the socket."""
        self._coalescer.expect_first_byte()
        self._report()
        self._pgconn.put_copy_end()
        self._pgconn.flush()
        deadline = time.monotonic() + _FAREWELL_S
        while self._pgconn.get_copy_data(1)[0] >= 0 and (left := deadline - time.monotonic()) > 0:
            if wait_readable(self._pgconn, left):
                self._pgconn.consume_input()


def _open(
    dsn: str, slot: str, start_lsn: LSN, publication: str, options: Mapping[str, str | bool | int]
) -> tuple[PGconn, float]:
    """The connection in COPY BOTH mode, and the seconds between reports that keep it."""
    pgconn = connect_replication(dsn, application_name="wal2lake capture")
    try:
        rows = execute(pgconn, "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
        timeout_s = int(rows[0][0] or 0) / 1000
        plugin = {**options, "publication_names": quote_identifier(publication)}
        start(pgconn, start_replication_logical(slot, start_lsn, plugin))
    except BaseException:
        pgconn.finish()
        raise
    return pgconn, min(STATUS_INTERVAL_S, timeout_s / 3) if timeout_s else STATUS_INTERVAL_S
