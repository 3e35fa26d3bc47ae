"""Where a stream's frames come from is a port: whole CopyData payloads in, CopyData payloads out, and an orderly end.

libpq is one source: it frames, decrypts and buffers. Nothing in a source waits, but for its exchanges; nothing in it
knows what the payloads mean. Either side may end the copy. What the server says after it (a row at the end of a
timeline, an error) is a result like any other.

Source: PostgreSQL documentation, "COPY Operations"; "libpq: Functions Associated with the COPY Command".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Protocol

import psycopg
from psycopg import pq
from psycopg.waiting import Wait

from wal2lake.postgres import exchange
from wal2lake.postgres.errors import connection_lost
from wal2lake.postgres.exchange import PGconn, Row
from wal2lake.postgres.notices import Notices
from wal2lake.postgres.waiting import Exchange, Waiting, wait

ANSWER_S: Final = 10.0
_FILLS = 8


class Frames(Protocol):
    """A running COPY. Every method may raise ConnectError."""

    @property
    def ended(self) -> bool:
        """The server has sent its CopyDone or an error, and all before it was taken."""

    def fileno(self) -> int:
        """The socket to wait for."""

    def fill(self, times: int = 1) -> bool:
        """Read what the socket has, some 16 kB each time. True: something came, and more may be there that no poll
        shows."""

    def take(self) -> list[bytes]:
        """The payloads that are whole, in order. A warning that the server goes on without what was asked for is raised
        as the error that it stands for, when all before it has been returned."""

    def put(self, payload: bytes) -> Exchange[None]:
        """Send one CopyData."""

    def put_end(self) -> Exchange[None]:
        """Send our CopyDone."""

    def outcome(self) -> Exchange[list[Row]]:
        """After the server has ended: end our half too; the rows that it says last. Raises its error."""

    def close(self) -> None:
        """Close the connection."""


class LibpqFrames:
    """Frames of a connection that has entered a COPY state. ``before``: rows that came instead of a copy, which then
    has ended before it began, as where a timeline ends at the very point that was asked for. ``raise_refusals``:
    warnings that mean "I go on without what you asked for" end the stream (notices.py)."""

    def __init__(self, pgconn: PGconn, before: list[Row] | None = None, *, raise_refusals: bool = False) -> None:
        self.pgconn = pgconn
        self._fileno = pgconn.socket  # libpq knows it no more when the connection has broken
        self.ended = before is not None
        self._before = before or []
        heard = pgconn.notice_handler
        self._heard = heard if raise_refusals and isinstance(heard, Notices) else Notices()

    def fileno(self) -> int:
        return self._fileno

    def fill(self, times: int = 1) -> bool:
        try:
            for _ in range(times):  # several at a time make libpq's buffer grow as well
                self.pgconn.consume_input()
        except psycopg.Error as error:
            raise connection_lost(str(error)) from error
        return False  # it has read until poll shows the rest

    def take(self) -> list[bytes]:
        payloads: list[bytes] = []
        if self.ended:
            return payloads
        get, append, heard, length = self.pgconn.get_copy_data, payloads.append, self._heard, 1
        try:
            while heard.refusal is None:
                length, payload = get(1)
                if length <= 0 or heard.refusal is not None:
                    break
                append(bytes(payload))  # at once: a memory view for each, kept, would wake the garbage collector
        except psycopg.Error as error:
            raise connection_lost(str(error)) from error
        if heard.refusal is not None:
            if not payloads:
                raise heard.refusal
        else:
            self.ended = length < 0
        return payloads

    def put(self, payload: bytes) -> Exchange[None]:
        return exchange.put_copy_data(self.pgconn, payload)

    def put_end(self) -> Exchange[None]:
        self._heard = Notices()  # what is discarded from here on may be as it likes
        return exchange.put_copy_end(self.pgconn)

    def outcome(self) -> Exchange[list[Row]]:
        rows = self._before
        while (result := (yield from exchange.next_result(self.pgconn, ANSWER_S))) is not None:
            if result.status == pq.ExecStatus.COPY_IN:  # the server ended first, our half is still open
                yield from self.put_end()
            rows = exchange.text_rows(result) or rows
        return rows

    def close(self) -> None:
        self.pgconn.finish()


def start_copy(pgconn: PGconn, command: str) -> Exchange[LibpqFrames]:
    """Send START_REPLICATION …; raises what map_error says."""
    return LibpqFrames(pgconn, (yield from begin_copy(pgconn, command)), raise_refusals=True)


def begin_copy(pgconn: PGconn, command: str) -> Exchange[list[Row] | None]:
    """The same without the frames: the rows that came instead of a copy, if any did."""
    result = yield from exchange.command(pgconn, command)
    return None if result.status == pq.ExecStatus.COPY_BOTH else exchange.text_rows(result)


def copy_out(pgconn: PGconn, wait_s: float = 1.0) -> Iterator[list[bytes]]:
    """The payloads of a running COPY OUT, as many at a time as have come; looks at the socket every ``wait_s``."""
    frames = LibpqFrames(pgconn)
    while True:
        if payloads := frames.take():
            yield payloads
        if frames.ended:
            return
        wait(_fill_within(frames, wait_s), frames.fileno())


def _fill_within(frames: Frames, wait_s: float) -> Exchange[None]:
    yield Waiting(Wait.R, time.monotonic() + wait_s)
    frames.fill(_FILLS)
