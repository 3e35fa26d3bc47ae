"""Frames (frames.py) of a copy whose bytes are read past libpq (transport.py), whole buffers at once.

What comes besides CopyData is little, and is read message by message by ``wire``. A frame is believed to be as long as
it says only as far as it has come: the room for it doubles with what is there, up to a message's limit.

Source: PostgreSQL documentation, "COPY Operations", "Streaming Replication Protocol".
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from psycopg.waiting import Ready, Wait

from wal2lake.columnar.buffer import MARGIN, SPAN
from wal2lake.columnar.framing import HEAD, Framed, walk
from wal2lake.errors import ConnectError, ProtocolError, Wal2LakeError
from wal2lake.postgres.errors import connection_lost, reported
from wal2lake.postgres.exchange import PGconn, Row, reading_answer
from wal2lake.postgres.frames import ANSWER_S, LibpqFrames, begin_copy
from wal2lake.postgres.notices import Notices
from wal2lake.postgres.transport import Transport, transport_of
from wal2lake.postgres.waiting import Exchange, Waiting
from wal2lake.wire.framing import BackendReader, write_frame
from wal2lake.wire.messages import (
    BackendMessage,
    CopyBothResponse,
    CopyData,
    CopyDone,
    CopyOutResponse,
    DataRow,
    ErrorResponse,
    NoticeResponse,
    NotificationResponse,
    ParameterStatus,
    Query,
    ReadyForQuery,
)

_BUFFER_BYTES: Final = 1 << 20
_ROOM_BYTES: Final = 128 << 10  # with less room a buffer is left to who reads in it
_KEEPALIVE_BYTES: Final = 18
_XLOG_DATA: Final = b"w"
_UNASKED: Final = (ParameterStatus, NotificationResponse)
_COPYING: Final = (CopyBothResponse, CopyOutResponse)


class _Notice(NamedTuple):
    """A NoticeResponse as psycopg's Diagnostic shows one."""

    severity_nonlocalized: str | None
    sqlstate: str | None
    message_primary: str | None
    source_function: str | None


class SocketFrames:
    """The frames of ``pgconn`` by ``transport``, which is closed with it; a copy is running between ``start`` and the
    server's end of it. ``mark`` and ``short`` of payloads as ``walk`` takes them. ``heard``: who is told of notices.
    """

    def __init__(
        self,
        pgconn: PGconn,
        transport: Transport,
        heard: Notices,
        mark: bytes = _XLOG_DATA,
        short: int = _KEEPALIVE_BYTES,
        buffer_bytes: int = _BUFFER_BYTES,
    ) -> None:
        self._copying = False
        self._pgconn, self._transport = pgconn, transport
        self._fileno = pgconn.socket
        self._heard, self._mark, self._brief = heard, mark, short
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray(MARGIN + buffer_bytes + SPAN)
        self._at = self._end = MARGIN  # what has come, and was not looked at
        self._wanted = HEAD
        self._pieces: list[Framed] = []
        self._short: list[bytes] = []
        self._said: list[BackendMessage] = []  # outside of the copy
        self._we_ended = False
        self._lost: ConnectError | None = None

    def start(self, command: str) -> Exchange[None]:
        """Send START_REPLICATION … or COPY … TO STDOUT; raises what map_error says."""
        yield from self._send(write_frame(Query(command)))
        began = False
        while not began:
            if not self.fill():
                yield Waiting(Wait.R)
            for message in self._heed():
                if isinstance(message, ErrorResponse) and not began:
                    raise _error(message)
                if isinstance(message, ReadyForQuery) and not began:
                    raise ProtocolError(f"The server's answer to {command.split(maxsplit=1)[0]} is not as documented.")
                if began:
                    self._said.append(message)  # it ended at once
                began |= isinstance(message, _COPYING)

    @property
    def ended(self) -> bool:
        """The server has sent its CopyDone or an error, and all before it was taken."""
        return not (self._copying or self._pieces or self._short)

    def fileno(self) -> int:
        return self._fileno

    def fill(self, times: int = 1) -> bool:
        """Read what has come, up to a buffer full; True when something had."""
        if self._pieces or self._short:
            return True  # what was found already is to be taken first
        if self._lost is not None:
            raise self._lost
        self._make_room()
        began = self._end
        with memoryview(self._buffer)[:-SPAN] as whole:
            while len(whole) - self._end >= _ROOM_BYTES // 2:  # which TLS wants at least, by far
                try:
                    with whole[self._end :] as room:
                        count = self._transport.read_into(room)
                except ConnectError as error:
                    if self._end == began:
                        raise
                    self._lost = error  # what came before it is taken first
                    break
                self._end += count
                if self._end < len(whole):  # nothing more is there
                    break
        return self._end > began

    def _make_room(self) -> None:
        """What was taken is never written over: what hangs over moves to the next buffer."""
        rest = self._end - self._at
        if not self.is_full:
            return
        fresh = bytearray(MARGIN + max(self._buffer_bytes, min(self._wanted, 2 * rest) + _ROOM_BYTES) + SPAN)
        fresh[MARGIN : MARGIN + rest] = memoryview(self._buffer)[self._at : self._end]
        self._buffer, self._at, self._end = fresh, MARGIN, MARGIN + rest

    @property
    def is_full(self) -> bool:
        """What comes next begins another buffer."""
        return len(self._buffer) - SPAN - self._end < _ROOM_BYTES

    def take_framed(self) -> tuple[list[Framed], list[bytes]]:
        """What is whole, without waiting: the payloads of XLogData, and those that are as short as a keepalive, which
        may have stood among them. A warning that is a refusal is raised when all before it has been returned."""
        if self._heard.refusal is None:
            self._said += self._heed()
        pieces, short, self._pieces, self._short = self._pieces, self._short, [], []
        if self._heard.refusal is not None and not (pieces or short):
            raise self._heard.refusal
        return pieces, short

    def take(self) -> list[bytes]:
        """Every payload as a value of its own; the short ones last."""
        pieces, short = self.take_framed()
        return [payload for piece in pieces for payload in piece.payloads] + short

    def _heed(self) -> list[BackendMessage]:
        """Look at what has come: note what is of the copy, and return what is said outside of it."""
        said: list[BackendMessage] = []
        if self._end - self._at < self._wanted:
            return said  # a large one comes in many pieces, and is looked at when it is whole
        found = walk(self._buffer, self._at, self._end, self._mark, self._brief)
        self._at, self._wanted = found.at, found.wanted
        wrong = found.wrong
        for at, after in found.other:
            try:
                message = _read(bytes(memoryview(self._buffer)[at:after]))
            except ProtocolError as error:
                wrong = error
                found.cut(at)
                break
            if isinstance(message, NoticeResponse):
                self._heard.hear(_Notice(*(_field(message, kind) for kind in "VCMR")))
                if self._heard.refusal is not None:
                    found.cut(at)
                    break
            elif isinstance(message, CopyData) and self._copying:
                self._short.append(message.data)
            elif not isinstance(message, _UNASKED):
                said.append(message)
                self._copying = isinstance(message, _COPYING)
                if not self._copying:
                    found.cut(at)
        if wrong is not None:  # which is raised when all before it was taken
            self._lost = connection_lost(f"lost synchronization with server: {wrong.message}")
        if found.begins:
            self._pieces.append(Framed(self._buffer, *found.payloads()))
        return said

    def put(self, payload: bytes) -> Exchange[None]:
        return self._send(write_frame(CopyData(payload)))

    def put_end(self) -> Exchange[None]:
        self._heard, self._we_ended = Notices(), True  # what is discarded from here on may be as it likes
        return self._send(write_frame(CopyDone()))

    def _send(self, frame: bytes) -> Exchange[None]:
        """Until all is with the kernel. It reads meanwhile, for the server may do nothing else either."""
        rest = memoryview(frame)
        while rest:
            if self._lost is not None:
                raise self._lost
            sent = self._transport.write(rest)
            rest = rest[sent:]
            if not sent and (yield Waiting(Wait.RW)) & Ready.R:
                self.fill()

    def outcome(self) -> Exchange[list[Row]]:
        rows: list[Row] = []
        deadline = time.monotonic() + ANSWER_S
        while True:
            for message in self._said:
                if isinstance(message, ErrorResponse):
                    raise _error(message)
                if isinstance(message, DataRow):
                    with reading_answer("a command"):
                        rows.append(tuple(None if value is None else value.decode() for value in message.values))
                if isinstance(message, ReadyForQuery):
                    return rows
            if not self._we_ended:
                yield from self.put_end()
            self._pieces, self._short = [], []  # what still comes of the copy is nobody's any more
            if not self.fill():
                yield Waiting(Wait.R, deadline)
            if time.monotonic() >= deadline:
                raise ConnectError(f"The server did not answer within {ANSWER_S:g} s.")
            self._said = self._heed()

    def close(self) -> None:
        self._transport.close()
        self._pgconn.finish()


class JoinedFrames(LibpqFrames):
    """LibpqFrames whose payloads, taken one by one, are put together again."""

    def take_framed(self) -> tuple[list[Framed], list[bytes]]:
        """As SocketFrames's."""
        payloads = self.take()
        short = [payload for payload in payloads if len(payload) <= _KEEPALIVE_BYTES]
        if short:
            payloads = [payload for payload in payloads if len(payload) > _KEEPALIVE_BYTES]
        return [Framed.of(payloads)] if payloads else [], short


def start_framed_copy(pgconn: PGconn, command: str) -> Exchange[SocketFrames | JoinedFrames]:
    """start_copy, past libpq where that can be."""
    transport = transport_of(pgconn)
    if transport is None:
        return JoinedFrames(pgconn, (yield from begin_copy(pgconn, command)), raise_refusals=True)
    handler = pgconn.notice_handler
    frames = SocketFrames(pgconn, transport, handler if isinstance(handler, Notices) else Notices())
    try:
        yield from frames.start(command)
    except BaseException:
        transport.close()
        raise
    return frames


def _read(frame: bytes) -> BackendMessage:
    reader = BackendReader()
    reader.feed(frame)
    message = reader.receive()
    assert message is not None
    return message


def _field(said: NoticeResponse | ErrorResponse, kind: str) -> str | None:
    """A field's text; what is no UTF-8 in it is replaced, as psycopg does."""
    value = next((field.value for field in said.fields if field.type == kind), None)
    return None if value is None else value.encode(errors="surrogateescape").decode(errors="replace")


def _error(said: ErrorResponse) -> Wal2LakeError:
    sqlstate, primary, function, *further = (_field(said, kind) or "" for kind in "CMRDH")
    return reported(sqlstate, primary, function, further)
