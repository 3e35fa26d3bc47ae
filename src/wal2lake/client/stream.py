"""A stream for a program: iterate over it, acknowledge what is durable, leave it when done. Blocking, or in a loop.

A thread reads ahead and answers the server, in an asyncio program too: a consumer that computes keeps its event loop
from everything else, and the server would end a connection that is silent for wal_sender_timeout. A lost connection is
made anew and goes on behind what was handed out; nothing comes twice, nothing is missing. Only what was acknowledged
is forgotten by the server, and comes not again to the program's next run.

Once all that was handed out is acknowledged, the WAL behind it that holds nothing for the stream is too: a slot does
not stand still because its tables do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Generic, NamedTuple, Self, TypeVar

from wal2lake.arguments import as_lsn, as_seconds, as_xid
from wal2lake.client.readers import ReplicationReader
from wal2lake.errors import ConfigError, InterruptedByUser, Wal2LakeError
from wal2lake.login import Dsn
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import connect_replication, connect_replication_async, run, run_async
from wal2lake.postgres.read_ahead import ReadAhead, StreamEndedError
from wal2lake.postgres.reconnect import OnWait, Reconnect
from wal2lake.retry import Backoff

T = TypeVar("T")
_APPLICATION = "wal2lake"
_TICK_S = 1.0  # a signal that another thread got is looked at no later
_BATCH = 1000  # items handed out before an event loop serves others
_PAUSE_S, _PAUSE_MOST_S = 0.5, 30.0

logger = logging.getLogger("wal2lake.client")


def _log_wait(error: Wal2LakeError, seconds: float) -> None:
    logger.warning("%s Trying again in %g s.", error, seconds)


class Behaviour(NamedTuple):
    """How much is read ahead, and what becomes of a lost connection."""

    buffer_bytes: int
    reconnect: bool
    on_wait: OnWait | None


class _Session(Generic[T]):
    """What both kinds of stream are: a reader, its connection, and what was acknowledged."""

    def __init__(self, dsn: Dsn, reader: ReplicationReader[T], how: Behaviour) -> None:
        self._dsn = dsn
        self._reader = reader
        self._buffer_bytes = how.buffer_bytes
        backoff = Backoff(_PAUSE_S, _PAUSE_MOST_S) if how.reconnect else None
        self._reconnect = Reconnect(backoff, how.on_wait or _log_wait)
        self._logged: str | None = None
        self._ahead: ReadAhead | None = None
        self._acknowledged = LSN(0)
        self._feedback: tuple[int, int] | None = None
        self._pending: Iterator[T] = iter(())
        self._stopping = self._closed = False
        self._stopped = threading.Event()

    @property
    def delivered_lsn(self) -> LSN:
        """Up to where everything was handed out, transactions as a whole."""
        return self._reader.delivered_lsn

    @property
    def acknowledged_lsn(self) -> LSN:
        """Up to where the server may forget."""
        return self._acknowledged

    def acknowledge(self, lsn: int) -> None:
        """Everything before ``lsn`` is durable with you: the server may forget it, and hears so at once. Never goes
        back. After a transaction it is ``Commit.end_lsn``.

        Raises ConfigError for what was not handed out yet, which would be lost, and once the stream is closed, when the
        server hears no more.
        """
        lsn = as_lsn(lsn, "What is acknowledged")
        self._require_open()
        if lsn > self._reader.delivered_lsn:
            raise ConfigError(f"{LSN(lsn)} cannot be acknowledged: {self._reader.delivered_lsn} is how far was read.")
        if lsn > self._acknowledged:
            self._acknowledged = lsn
            if self._ahead is not None:
                self._ahead.acknowledge(self._acknowledged)

    def feed_back(self, xmin: int, catalog_xmin: int = 0) -> None:
        """Hot standby feedback: the oldest transactions, and of the catalogs, that are still needed where the WAL goes.

        Full transaction ids, as pg_current_snapshot() has them (64 bits, the epoch above); 0: none, which ends it. The
        server's VACUUM keeps what they may see: with a slot, which remembers it also when nobody is connected, until it
        is told otherwise; without one as long as the connection lasts, and a new connection is told again. The server
        ignores ids that it has not given yet. Raises ConfigError on a logical stream, and for what is no such id.

        Source: PostgreSQL documentation, "Hot standby feedback message"; hot_standby_feedback."""
        if not self._reader.physical:
            raise ConfigError("Hot standby feedback is for physical streams.", hint="connect_physical makes one.")
        self._require_open()
        self._feedback = as_xid(xmin, "xmin"), as_xid(catalog_xmin, "catalog_xmin")
        if self._ahead is not None:
            self._ahead.feed_back(*self._feedback)

    def _opened(self, ahead: ReadAhead) -> None:
        self._ahead = ahead
        ahead.acknowledge(self._acknowledged)
        if self._feedback is not None:
            ahead.feed_back(*self._feedback)
        self._reconnect.opened()

    def _while_opening(self) -> None:
        if self._reader.awaits not in (None, self._logged):
            self._logged = self._reader.awaits
            logger.warning("%s", self._logged)
        if self._stopping:
            raise InterruptedByUser("Stopped before the stream began.")

    def _take(self, ahead: ReadAhead, timeout_s: float) -> list[bytes]:
        """What has come. When it is called, all before has been handed out."""
        if ahead.keepalive_lsn > self._acknowledged:  # also where it came before what lies below was acknowledged
            free = self._reader.note_keepalive(ahead.keepalive_lsn, self._acknowledged)
            if free:
                self.acknowledge(free)
        payloads = ahead.receive(timeout_s)
        if payloads:
            self._reconnect.received()
        return payloads

    def _pause_after(self, error: Wal2LakeError) -> float:
        """The seconds to wait before the stream is opened again; raises ``error`` when it will not be."""
        if isinstance(error, StreamEndedError) and self._reader.continues_after(error.rows):
            return 0.0
        return self._reconnect.pause_after(error)

    def _require_open(self) -> None:
        if self._closed:
            raise ConfigError("The stream is closed.", hint="Read and acknowledge within its `with` block.")

    def _raise_failure(self) -> None:
        self._require_open()
        if self._reader.failure is not None:
            raise self._reader.failure


class Stream(_Session[T]):
    """A context manager and an iterator. Iterating ends when ``stop`` is called, and raises what no waiting mends.

    Leaving a loop loses nothing: the next one goes on with the next item. Not for several threads at once, except for
    ``stop`` and ``acknowledge``.
    """

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Tell the server what was acknowledged last, end the stream, close the connection."""
        ahead, self._ahead = self._ahead, None
        self._stopping = self._closed = True
        if ahead is not None:
            ahead.close()

    def stop(self) -> None:
        """End the iteration; callable from a signal handler or another thread."""
        self._stopping = True
        if (ahead := self._ahead) is not None:
            ahead.interrupt()
        self._stopped.set()

    def __iter__(self) -> Iterator[T]:
        self._raise_failure()
        while not self._stopping:
            for item in self._pending:
                yield item
                if self._stopping:
                    return
            self._pending = self._reader.items(self._payloads(_TICK_S))

    def receive(self, timeout_s: float = 1.0) -> list[T]:
        """What is there, at least one item unless ``timeout_s`` passes (longer where a connection is made anew) or
        ``stop`` is called; some megabytes at most."""
        until = time.monotonic() + as_seconds(timeout_s, "timeout_s")
        self._raise_failure()
        items, left_s = list(self._pending), timeout_s
        while not items and not self._stopping and left_s >= 0:  # a message may be no event
            self._pending = self._reader.items(self._payloads(left_s))
            items, left_s = list(self._pending), until - time.monotonic()
        return items

    def _payloads(self, timeout_s: float) -> list[bytes]:
        self._raise_failure()
        while not self._stopping:
            try:
                ahead = self._ahead or self._open()
                return self._take(ahead, timeout_s)
            except Wal2LakeError as error:
                self._handle_loss(error)
        return []

    def _open(self) -> ReadAhead:
        pgconn = connect_replication(self._dsn, application_name=_APPLICATION, physical=self._reader.physical)
        try:
            stream = run(pgconn, self._reader.opening(pgconn), self._while_opening)
        except BaseException:
            pgconn.finish()
            raise
        ahead = ReadAhead(stream, self._buffer_bytes)
        self._opened(ahead)
        return ahead

    def _handle_loss(self, error: Wal2LakeError) -> None:
        pause_s = self._pause_after(error)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        self._stopped.wait(pause_s)


class AsyncStream(_Session[T]):
    """Stream for an event loop: ``async with``, ``async for``; ``acknowledge`` and ``stop`` need no await."""

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        await self._open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Tell the server what was acknowledged last, end the stream, close the connection."""
        ahead, self._ahead = self._ahead, None
        self._stopping = self._closed = True
        if ahead is not None:
            await asyncio.to_thread(ahead.close)

    def stop(self) -> None:
        """End the iteration; callable within the loop, as by ``loop.add_signal_handler``."""
        self._stopping = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        self._raise_failure()
        while not self._stopping:
            for given, item in enumerate(self._pending, 1):
                yield item
                if self._stopping:
                    return
                if given % _BATCH == 0:
                    await asyncio.sleep(0)
            self._pending = self._reader.items(await self._payloads(_TICK_S))

    async def receive(self, timeout_s: float = 1.0) -> list[T]:
        """As Stream's."""
        until = time.monotonic() + as_seconds(timeout_s, "timeout_s")
        self._raise_failure()
        items, left_s = list(self._pending), timeout_s
        while not items and not self._stopping and left_s >= 0:
            self._pending = self._reader.items(await self._payloads(left_s))
            items, left_s = list(self._pending), until - time.monotonic()
        return items

    async def _payloads(self, timeout_s: float) -> list[bytes]:
        self._raise_failure()
        deadline = self._loop.time() + timeout_s
        while not self._stopping:
            try:
                ahead = self._ahead or await self._open()
                self._news.clear()
                if payloads := self._take(ahead, 0):
                    return payloads
                if self._loop.time() >= deadline:
                    break
                await self._wait_for_news(deadline - self._loop.time())
            except Wal2LakeError as error:
                await self._handle_loss(error)
        return []

    async def _wait_for_news(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def _open(self) -> ReadAhead:
        physical = self._reader.physical
        pgconn = await connect_replication_async(self._dsn, application_name=_APPLICATION, physical=physical)
        try:
            stream = await run_async(pgconn, self._reader.opening(pgconn), self._while_opening)
        except BaseException:
            pgconn.finish()
            raise
        ahead = ReadAhead(stream, self._buffer_bytes, self._notify_loop)
        self._opened(ahead)
        return ahead

    def _notify_loop(self) -> None:
        """In the reading thread."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._news.set)

    async def _handle_loss(self, error: Wal2LakeError) -> None:
        pause_s = self._pause_after(error)
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await asyncio.to_thread(ahead.close)
        self._news.clear()
        if not self._stopping:
            await self._wait_for_news(pause_s)
