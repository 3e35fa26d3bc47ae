"""The replication stream for who may be slow: a thread reads ahead, answers the server and reports; the caller takes.

What is said and when is replication.py's; here is the waiter that a thread and its caller need. The thread reads while
there is room, and also while there is none it reports by the clock, at least every third of wal_sender_timeout: a
walsender that waits for room in the socket still takes reports. Only the thread touches the connection; whoever wants
it to do something wakes it by a pipe.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from psycopg.waiting import Ready, Wait

from wal2lake.errors import ConnectError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.coalesce import Coalescer
from wal2lake.postgres.exchange import Row
from wal2lake.postgres.replication import FAREWELL_S, KEEPALIVE_BYTES, Replication
from wal2lake.postgres.waiting import Exchange, Waiting, as_ready, drive, wait

_SHORT_READ = 8192  # bytes; less means that the socket is empty
_READS = 8  # of about 16 kB, before libpq's buffer is emptied; they make the buffer grow as well
_MOST_S = 3600.0

Piece = TypeVar("Piece")


class StreamEndedError(ConnectError):
    """The server ended the stream in order; ``rows`` are what it said last, as which timeline comes next."""

    rows: list[Row]


class Ahead(ABC, Generic[Piece]):
    """A thread that drives ``stream``; what has come is handed over in pieces, each a payload, or many of them.

    At most ``buffer_bytes`` (and one read more) wait here for the caller; then the server is left waiting. ``on_news``
    is called in the thread whenever there is something to take, or a failure.

    ``received_lsn``, ``wal_end``, ``messages`` and ``received_bytes`` are for reports.
    """

    def __init__(
        self, stream: Replication, buffer_bytes: int = 64 << 20, on_news: Callable[[], None] | None = None
    ) -> None:
        self.keepalive_lsn = LSN(0)
        self.messages = self.received_bytes = 0
        stream.reply_requested = True  # the server hears at once where we stand
        self._stream = stream
        self._limit = buffer_bytes
        self._on_news = on_news or (lambda: None)
        self._news = threading.Condition()
        self._ready: list[Piece] = []
        self._ready_bytes = self._wanted = 0
        self._keepalive = LSN(0)
        self._failure: Exception | None = None
        self._closing = self._woken = False
        self._asked = self._reply_requested = False
        self._coalescer = Coalescer(stream.frames.fileno())
        self._waker, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="wal2lake-stream", daemon=True)
        self._thread.start()

    @property
    def received_lsn(self) -> LSN:
        return self._stream.received_lsn

    @property
    def wal_end(self) -> LSN:
        return self._stream.wal_end

    @property
    def confirmed_lsn(self) -> LSN:
        """What the server was last told to be flushed."""
        return self._stream.reported_lsn

    def receive(self, timeout_s: float, at_least: int = 1) -> list[Piece]:
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
            self._reply_requested, self._asked = self._asked, False
            if not ready and self._failure is not None:
                raise self._failure
        self._wake_thread()  # the thread may wait for room
        return ready

    @property
    def reply_requested(self) -> bool:
        """The server asked for an answer, and had it, amid what the last ``receive`` returned: it may be that it stops,
        and waits until all that it has sent is acknowledged."""
        return self._reply_requested

    def interrupt(self) -> None:
        """Have a ``receive`` that waits return what there is."""
        with self._news:
            self._wanted = 0
            self._news.notify_all()

    def acknowledge(self, flushed: LSN) -> None:
        """Everything below ``flushed`` is durable here: the server may forget it. Never goes back."""
        if flushed > self._stream.flushed:
            self._stream.acknowledge(flushed)
            self._wake_thread()

    def feed_back(self, xmin: int, catalog_xmin: int) -> None:
        """Replication.feed_back, at once."""
        self._stream.feed_back(xmin, catalog_xmin)
        self._wake_thread()

    def close(self) -> None:
        """Tell the server the last acknowledged position, end the stream, close the connection."""
        self._closing, self._woken = True, False
        self._wake_thread()
        self._thread.join()
        if self._failure is not None:  # what was acknowledged counts all the same, if the connection still stands
            with contextlib.suppress(Wal2LakeError):
                wait(self._stream.finish(FAREWELL_S), self._stream.frames.fileno())
        self._coalescer.close()
        self._stream.frames.close()
        for end in (self._waker, self._wake):
            os.close(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    # -- the reading thread; only it touches the connection

    def _run(self) -> None:
        try:
            drive(self._read_ahead(), self._wait)
        except Exception as error:  # noqa: BLE001 - nothing is lost: receive raises it in the caller's thread
            with self._news:
                self._failure = error
                self._news.notify_all()
        finally:
            self._on_news()

    def _read_ahead(self) -> Exchange[None]:
        stream = self._stream
        while not self._closing:
            came = self._read()
            if stream.ended:
                raise (yield from self._why_ended())
            if stream.status_due() or stream.flushed != stream.reported_lsn:
                yield from stream.send_status()
            room = self._ready_bytes < self._limit
            yield Waiting(Wait.R if room else 0, stream.next_status, flowing=came and room)
        with contextlib.suppress(ConnectError):  # the last status is a courtesy to who stops
            yield from stream.finish(FAREWELL_S)

    def _why_ended(self) -> Exchange[Wal2LakeError]:
        """Why the server left COPY mode: its error, its shutdown, or the timeline's end."""
        try:
            rows = yield from self._stream.frames.outcome()
        except Wal2LakeError as error:
            return error
        hint = "It shuts down; the stream goes on when it is back."
        ended = StreamEndedError("The server ended the stream.", hint=hint)
        ended.rows = rows
        return ended

    def _enough(self) -> bool:
        return self._ready_bytes >= self._wanted or self._failure is not None

    def _read(self) -> bool:
        """Take what is there, while there is room; True when something came, so that more is to be expected."""
        came = False
        while self._ready_bytes < self._limit and not self._stream.ended:
            came |= self._stream.frames.fill(_READS)
            pieces, messages, size = self._take()
            if size:
                came = True
                self._publish(pieces, messages, size)
            if size < _SHORT_READ:
                break
        return came

    @abstractmethod
    def _take(self) -> tuple[list[Piece], int, int]:
        """What has come and is whole, without the keepalives; of how many messages, and, with those, bytes it is."""

    def _publish(self, pieces: list[Piece], messages: int, size: int) -> None:
        """Hand over data and the keepalives among it at once: no keepalive may overtake data that came before it."""
        self.messages += messages
        self.received_bytes += size
        with self._news:
            self._ready += pieces
            self._ready_bytes += size
            self._keepalive = self._stream.keepalive_lsn
            self._asked |= self._stream.reply_requested
            if self._enough():
                self._news.notify_all()
        self._on_news()

    def _wait(self, waiting: Waiting) -> int:
        """Until there is something to do. Only after a read that brought nothing does a wait last: what TLS has
        decrypted already shows in no poll, but in the next read."""
        if waiting.flowing:
            self._coalescer.wait_for_more()
            return Ready.R
        self._coalescer.expect_first_byte()
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if waiting.wait:
            events = (select.POLLIN if waiting.wait & Wait.R else 0) | (select.POLLOUT if waiting.wait & Wait.W else 0)
            poll.register(self._stream.frames.fileno(), events)
        ready = 0
        for handle, events in poll.poll(waiting.seconds(_MOST_S) * 1000 + 1):
            if handle == self._waker:
                os.read(self._waker, 4096)
                self._woken = False  # from here on what is wanted is seen, or written for anew
            else:
                ready |= as_ready(events)
        return ready

    def _wake_thread(self) -> None:
        """Wake the thread, once for all that is wanted until it looks."""
        if not self._woken:
            self._woken = True
            os.write(self._wake, b"!")


class ReadAhead(Ahead[bytes]):
    """Each payload by itself."""

    def _take(self) -> tuple[list[bytes], int, int]:
        payloads = self._stream.take()
        size = sum(map(len, payloads))
        if payloads and min(map(len, payloads)) <= KEEPALIVE_BYTES:
            payloads = [payload for payload in payloads if len(payload) > KEEPALIVE_BYTES]
        return payloads, len(payloads), size
