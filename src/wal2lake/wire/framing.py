"""Bytes to messages and back, for either side: a tag, an Int32 length that counts itself, the fields.

A frame is taken only when it is whole, and its announced length is believed only up to the limit. While a connection
begins the frontend's messages have no tag and may be as long as MAX_STARTUP_PACKET_LENGTH.

Source: PostgreSQL documentation, "Message Formats"; src/backend/libpq/pqcomm.c, src/include/libpq/pqcomm.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from wal2lake.errors import ProtocolError
from wal2lake.wire.fields import Int32, Layout, Reader, wire_type
from wal2lake.wire.messages import (
    ANSWERS,
    BACKEND,
    FRONTEND,
    AuthenticationResponse,
    BackendMessage,
    FrontendMessage,
    StartupMessage,
    WireMessage,
)

MESSAGE_LIMIT: Final = (1 << 30) - 2  # PQ_LARGE_MESSAGE_LIMIT
STARTUP_LIMIT: Final = 10000  # MAX_STARTUP_PACKET_LENGTH
_INT32: Final = wire_type(Int32)
_LENGTH_SIZE: Final = 4

Table = dict[tuple[bytes, int | None], Layout[Any]]
M = TypeVar("M", bound=WireMessage)


def _table(classes: Iterable[type[WireMessage]]) -> Table:
    return {(cls.tag, cls.code): Layout(cls) for cls in classes}


_FRONTEND: Final = _table(FRONTEND)
_BACKEND: Final = _table(BACKEND)
_BY_CLASS: Final[dict[type, Layout[Any]]] = {cls: Layout(cls) for cls in (*FRONTEND, *ANSWERS, *BACKEND)}


def write_frame(message: WireMessage) -> bytes:
    """The whole frame of a message of either side."""
    body = bytearray()
    if message.code is not None:
        _INT32.write(body, message.code)
    _BY_CLASS[type(message)].write(body, message)
    return message.tag + (len(body) + _LENGTH_SIZE).to_bytes(_LENGTH_SIZE, "big") + bytes(body)


def read_as(cls: type[M], body: bytes) -> M:
    """Read the fields of ``cls`` from a body: what an AuthenticationResponse holds, the request alone tells."""
    reader = Reader(body, place=cls.__name__)
    message: M = _BY_CLASS[cls].read(reader)
    reader.end()
    return message


def read_body(table: Table, tag: bytes, body: bytes) -> Any:
    """Read a body by its tag and, where messages share one, by the code that the body begins with."""
    code = int.from_bytes(body[:_LENGTH_SIZE], "big") if len(body) >= _LENGTH_SIZE else None
    layout = table.get((tag, code))
    reader = Reader(body, 0 if layout is None or code is None else _LENGTH_SIZE)
    layout = layout or table.get((tag, None))
    if layout is None:
        raise ProtocolError(f"No message begins with the tag {tag!r} and the bytes {body[:4]!r}.", offset=0)
    message = layout.read(reader)
    reader.place = layout.name
    reader.end()
    return message


class FrameReader:
    """Collects the bytes of one direction and gives whole messages; offsets in errors count from the body's start."""

    def __init__(self, table: Table, limit: int = MESSAGE_LIMIT) -> None:
        self._table = table
        self._buffer = bytearray()
        self.limit = limit

    def feed(self, data: bytes | memoryview) -> None:
        self._buffer += data

    def _frame(self, tag_size: int, limit: int) -> tuple[bytes, bytes] | None:
        head = tag_size + _LENGTH_SIZE
        if len(self._buffer) < head:
            return None
        length = int.from_bytes(self._buffer[tag_size:head], "big") - _LENGTH_SIZE
        if not 0 <= length <= limit:
            raise ProtocolError(f"A message announces {length} bytes; 0 to {limit} are allowed.", offset=tag_size)
        if len(self._buffer) < head + length:
            return None
        tag, body = bytes(self._buffer[:tag_size]), bytes(self._buffer[head : head + length])
        del self._buffer[: head + length]
        return tag, body


class BackendReader(FrameReader):
    """What a client reads of a server."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        super().__init__(_BACKEND, limit)

    def receive(self) -> BackendMessage | None:
        """The next whole message, or None while bytes are missing; raise ProtocolError for what is none."""
        frame = self._frame(1, self.limit)
        return None if frame is None else read_body(self._table, *frame)


class FrontendReader(FrameReader):
    """What a server reads of a client: untagged until the StartupMessage has come, tagged from then on."""

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        super().__init__(_FRONTEND, limit)
        self.started = False

    def receive(self) -> FrontendMessage | None:
        """The next whole message, or None while bytes are missing; raise ProtocolError for what is none."""
        frame = self._frame(1, self.limit) if self.started else self._frame(0, STARTUP_LIMIT)
        if frame is None:
            return None
        message: FrontendMessage = read_body(self._table, *frame)
        self.started = self.started or isinstance(message, StartupMessage)
        return message


def interpret(response: AuthenticationResponse, cls: type[M]) -> M:
    """An answer as the PasswordMessage or SASLInitialResponse that was asked for."""
    return read_as(cls, response.data)
