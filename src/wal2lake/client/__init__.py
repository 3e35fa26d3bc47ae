"""Replication for a Python program: ``connect`` and ``connect_physical``, typed events, acknowledgement by hand.

Rule: what a program sees of a stream is whole, once, and in order, whatever happens to the connection beneath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Literal, NoReturn, TypeVar

from psycopg.adapt import AdaptersMap

from wal2lake.arguments import as_callback, as_count, as_flag, as_lsn, as_name, as_names
from wal2lake.client.events import (
    UNCHANGED,
    Begin,
    Change,
    Column,
    Commit,
    Delete,
    Event,
    Insert,
    Message,
    Origin,
    Relation,
    Truncate,
    Unchanged,
    Update,
)
from wal2lake.client.readers import LogicalOptions, LogicalReader, PhysicalReader, ReplicationReader
from wal2lake.client.stream import AsyncStream, Behaviour, Stream
from wal2lake.errors import ConfigError
from wal2lake.login import Command, Dsn, as_login
from wal2lake.pgoutput import options as pgoutput
from wal2lake.postgres.reconnect import OnWait
from wal2lake.wire.replication import XLogData

__all__ = [
    "UNCHANGED", "AsyncStream", "Begin", "Change", "Column", "Commit", "Delete", "Event", "Insert", "Message", "Origin",
    "Relation", "Stream", "Truncate", "Unchanged", "Update", "XLogData", "connect", "connect_physical",
]  # fmt: skip

T = TypeVar("T")
BUFFER_BYTES = 16 << 20


class Connecting(Generic[T]):
    """A stream that is about to be opened: by ``with`` as a Stream, by ``async with`` as an AsyncStream."""

    def __init__(
        self,
        dsn: Dsn,
        reader: Callable[[], ReplicationReader[T]],
        buffer_bytes: int,
        reconnect: bool,
        on_wait: OnWait | None,
    ) -> None:
        self._dsn = as_login(dsn)
        self._reader = reader
        self._how = Behaviour(
            as_count(buffer_bytes, "buffer_bytes"), as_flag(reconnect, "reconnect"), as_callback(on_wait, "on_wait")
        )
        self._blocking: Stream[T]
        self._async: AsyncStream[T]
        self._stop: Callable[[], None] | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the stream's iteration, or its opening (InterruptedByUser). Before there is one: it will open and give
        nothing. For signal handlers that are set before the ``with``; of an AsyncStream within its loop."""
        self._stopped = True
        if self._stop is not None:
            self._stop()

    def __iter__(self) -> NoReturn:
        """Raise ConfigError: what is iterated over is the stream that ``with`` opens."""
        raise ConfigError("A stream is opened before it is read.", hint="Write `with connect(…) as stream:` first.")

    def __aiter__(self) -> NoReturn:
        """Raise ConfigError, as ``__iter__`` does."""
        hint = "Write `async with connect(…) as stream:` first."
        raise ConfigError("A stream is opened before it is read.", hint=hint)

    def __enter__(self) -> Stream[T]:
        self._blocking = Stream(self._dsn, self._reader(), self._how)
        self._stop = self._blocking.stop
        opened = self._blocking.__enter__()
        if self._stopped:
            opened.stop()
        return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocking.close()

    async def __aenter__(self) -> AsyncStream[T]:
        self._async = AsyncStream(self._dsn, self._reader(), self._how)
        self._stop = self._async.stop
        opened = await self._async.__aenter__()
        if self._stopped:
            opened.stop()
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async.close()


def connect(
    dsn: Dsn = "",
    *,
    slot: str,
    publication: str | Sequence[str],
    create_slot: bool = False,
    start_lsn: int = 0,
    messages: bool = False,
    origin: pgoutput.Origin | None = None,
    binary: bool = False,
    streaming: pgoutput.Streaming = "off",
    two_phase: bool = False,
    values: Literal["python", "text"] = "python",
    adapters: AdaptersMap | None = None,
    reconnect: bool = True,
    on_wait: OnWait | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    password_command: Command = (),
) -> Connecting[Event]:
    """The changes of one or several publications, transaction by transaction as they commit, from a pgoutput slot.

    ``dsn``: libpq's keywords or URI; '' takes PGHOST and its kin. ``create_slot`` makes the slot when there is none
    (which waits for running transactions). ``start_lsn``: up to where you have everything; 0: where the slot stands.
    ``messages``: those of pg_logical_emit_message too (14+). ``origin`` 'none': not what was replicated to the server
    (16+). ``binary``: values travel in binary form (14+). ``values`` 'text': PostgreSQL's text instead of Python's
    types. ``adapters``: loaders of your own (psycopg's AdaptersMap; its global one else). ``reconnect`` False: a lost
    connection is an error; else ``on_wait`` hears it and the seconds until the next try (else a warning is logged).
    ``buffer_bytes``: how much is read ahead. ``password_command``: a program and its arguments, or the text of both,
    which prints the password of each connection, as a token of IAM. ``streaming`` and ``two_phase`` are refused:
    transactions come whole.

    Raises ConfigError; opening raises AuthError, ConnectError, SlotMissingError, SlotInUseError, PublicationError and
    the others of wal2lake.errors; iterating raises what no waiting mends: LogMismatchError when the slot or the server
    was moved, SlotLostError, UnrepresentableError for a value that its Python type cannot hold, ProtocolError.
    """
    options = pgoutput.PgoutputOptions(
        as_names(publication, "publication"),
        proto_version=_proto_version(streaming, two_phase),
        binary=binary,
        messages=messages,
        streaming=streaming,
        two_phase=two_phase,
        origin=origin,
    )
    start = as_lsn(start_lsn, "start_lsn")
    create = as_flag(create_slot, "create_slot")
    what = LogicalOptions(as_name(slot, "slot"), options, create, start, values, adapters)
    return Connecting(as_login(dsn, password_command), lambda: LogicalReader(what), buffer_bytes, reconnect, on_wait)


def connect_physical(
    dsn: Dsn = "",
    *,
    slot: str | None = None,
    start_lsn: int | None = None,
    timeline: int | None = None,
    reconnect: bool = True,
    on_wait: OnWait | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    password_command: Command = (),
) -> Connecting[XLogData]:
    """The WAL itself, as XLogData without a gap: ``payload`` are its bytes from ``start_lsn`` on.

    It begins at ``start_lsn`` of ``timeline`` (None: where the physical ``slot`` keeps WAL from, or where the server's
    ends now) and crosses promotions. Acknowledge the end of what is durable (``start_lsn + len(payload)``); without a
    slot that only tells pg_stat_replication. ``password_command`` is as in connect. Raises as connect does.
    """
    start = None if start_lsn is None else as_lsn(start_lsn, "start_lsn")
    name = None if slot is None else as_name(slot, "slot")
    number = None if timeline is None else as_count(timeline, "timeline")
    login = as_login(dsn, password_command)
    return Connecting(login, lambda: PhysicalReader(name, start, number), buffer_bytes, reconnect, on_wait)


def _proto_version(streaming: pgoutput.Streaming, two_phase: bool) -> int:
    """What the options would need, so that they are refused for what they are."""
    least = pgoutput.STREAMING_PROTO_VERSION.get(streaming, 1) if isinstance(streaming, str) else 1
    return max(least, pgoutput.TWO_PHASE_PROTO_VERSION) if two_phase else least
