"""The rows of a COPY … TO STDOUT (FORMAT binary), whole buffers at once: past libpq where that can be (transport.py).

PostgreSQL sends each row as one CopyData, the file header in front of the first row's, the trailer as the last. So the
messages tell where rows begin and end. That each is a whole row and no more is seen by whoever decodes it, and what is
none is refused. Nobody waits for a single row here: a buffer is looked at when it is full, when the answer seems to
have ended, or when nothing has come for a moment.

libpq sees nothing of such a copy, and goes on with the connection behind it as if it had not been. Amid one it could
not: whoever stops before the end, or is told of an error, has to close the connection.

Source: PostgreSQL documentation, "Message Flow" (COPY Operations), COPY (Binary Format); CopySendEndOfRow in copyto.c.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Generator, Iterator
from typing import Final

from psycopg.waiting import Wait

from wal2lake.columnar.framing import Framed
from wal2lake.errors import ConnectError, ProtocolError, Wal2LakeError
from wal2lake.postgres.connection import cancel_unseen, next_result, start
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.frames import copy_out
from wal2lake.postgres.notices import Notice, Notices, log_notice
from wal2lake.postgres.socket_frames import SocketFrames
from wal2lake.postgres.transport import Transport, transport_of
from wal2lake.postgres.waiting import Exchange, Waiting, wait
from wal2lake.wire.copyformat import SIGNATURE, binary_trailer

_BUFFER_BYTES: Final = 2 << 20  # what decoding takes at a time
_LOW_WATER: Final = 256 << 10  # wake once for many rows; the wait is bounded, so the end of the table never hangs
_LIBPQ_LOW_WATER: Final = 64 << 10  # which reads less at a time
_WAIT_S: Final = 0.02
_HEADER: Final = len(SIGNATURE) + 4  # and flags; the length of an extension area follows, and that
_TRAILER: Final = binary_trailer()
_READY: Final = b"Z\0\0\0\5"  # and the transaction's status: what every answer ends with


def copied_rows(pgconn: PGconn, command: str, columns: int) -> Iterator[Framed]:
    """The rows that ``command`` copies, of so many columns, as many at a time as a buffer brings; header and trailer
    are left out. ``pgconn`` is in libpq's non-blocking mode.

    Behind the last, the server has ended the command without an error. Raises what map_error says.
    """
    transport = transport_of(pgconn)
    pieces = _by_libpq(pgconn, command) if transport is None else _past_libpq(pgconn, transport, command, columns)
    with contextlib.closing(pieces):
        begun = False
        for piece in pieces:
            rows = piece if begun else _without_header(piece)
            begun = True
            if len(rows) and rows.last(len(_TRAILER) + 1) == _TRAILER:
                rows = rows[:-1]
            if len(rows):
                yield rows


def _without_header(piece: Framed) -> Framed:
    """Cut the file header, with which the first row's message begins."""
    begins = piece.begins.copy()
    head = bytes(piece.data[int(begins[0]) : int(begins[0]) + _HEADER + 4])
    begins[0] += len(head) + int.from_bytes(head[_HEADER:])
    if not head.startswith(SIGNATURE) or begins[0] > piece.ends[0]:
        raise ProtocolError("The server's answer to COPY does not begin with a file header.")
    rows = Framed(piece.data, begins, piece.ends)
    return rows[1:] if begins[0] == piece.ends[0] else rows


class _CopyFrames(SocketFrames):
    """The frames of a COPY TO."""

    def __init__(self, pgconn: PGconn, transport: Transport, columns: int) -> None:
        super().__init__(pgconn, transport, _Logged(), columns.to_bytes(2), len(_TRAILER), _BUFFER_BYTES)
        self._we_ended = True  # there is no half of ours

    def gather(self) -> Exchange[None]:
        """Until there may be something to take, or nothing has come for a while."""
        self.fill()
        while not (self._pieces or self._lost or self.is_full or self._seems_ended()):
            ready = yield Waiting(Wait.R, time.monotonic() + _WAIT_S)
            try:
                came = self.fill()
            except ConnectError as error:
                self._lost = error  # what came before it is taken first
                return
            if not came and not ready:
                return

    def _seems_ended(self) -> bool:
        end = self._end - 1
        return self._buffer[max(self._at, end - len(_READY)) : end] == _READY


class _Logged(Notices):
    """Notices that end nothing."""

    def hear(self, notice: Notice) -> None:
        log_notice(notice)


def _past_libpq(pgconn: PGconn, transport: Transport, command: str, columns: int) -> Generator[Framed]:
    with contextlib.closing(transport):
        frames = _CopyFrames(pgconn, transport, columns)
        try:
            wait(frames.start(command), frames.fileno())
        except Wal2LakeError:
            raise
        except BaseException:  # it may be waiting for a lock
            cancel_unseen(pgconn)
            raise
        while not frames.ended:
            wait(frames.gather(), frames.fileno())
            if frames.is_full:
                _set_low_water(pgconn, _LOW_WATER)
            pieces, short = frames.take_framed()
            yield from pieces
            if short not in ([], [_TRAILER]):
                raise ProtocolError("The server sent a message amid a COPY that is no row.")
        _set_low_water(pgconn, 1)  # what follows is answered in few bytes
        wait(frames.outcome(), frames.fileno())


def _by_libpq(pgconn: PGconn, command: str) -> Generator[Framed]:
    """The same where libpq has to read."""
    start(pgconn, command)
    _set_low_water(pgconn, _LIBPQ_LOW_WATER)
    rows: list[bytes] = []
    size = 0
    for fresh in copy_out(pgconn, _WAIT_S):
        rows += fresh
        size += sum(map(len, fresh))
        if size >= _BUFFER_BYTES:
            yield Framed.of(rows)
            rows, size = [], 0
    if rows:
        yield Framed.of(rows)
    _set_low_water(pgconn, 1)
    while next_result(pgconn) is not None:
        pass


def _set_low_water(pgconn: PGconn, low_water: int) -> None:
    """Let the kernel wake us for many rows at once; TLS and Unix sockets may refuse, and need it less."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(pgconn.socket)) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
