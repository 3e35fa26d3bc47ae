"""A message is declared once, as a dataclass whose annotations are wire types; reading and writing both follow it.

Each wire type holds ``read`` beside ``write`` and the name that PostgreSQL's documentation gives it. Reading checks
the bounds and the meaning, never trusts a count, and fails with ProtocolError and the offset; writing refuses what
reading would refuse, so whatever is written can be read.

Source: PostgreSQL documentation, "Message Data Types"; src/backend/libpq/pqformat.c.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN

T = TypeVar("T")


class Reader:
    """A cursor over the bytes of one message; ``place`` names the field being read, for errors."""

    __slots__ = ("data", "offset", "place")

    def __init__(self, data: bytes | bytearray | memoryview, offset: int = 0, place: str = "message") -> None:
        self.data = bytes(data)
        self.offset = offset
        self.place = place

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def error(self, problem: str) -> ProtocolError:
        """The error to raise: ``problem`` continues a sentence that begins with the place."""
        return ProtocolError(f"{self.place} {problem}.", offset=self.offset)

    def short(self, size: int) -> ProtocolError:
        """The error to raise where ``size`` bytes are needed and not there."""
        return self.error(f"needs {size} bytes where {self.left} are left")

    def peek(self) -> int:
        """The next byte, which is not taken."""
        if self.offset >= len(self.data):
            raise self.short(1)
        return self.data[self.offset]

    def take(self, size: int) -> bytes:
        start, end = self.offset, self.offset + size
        if not start <= end <= len(self.data):
            raise self.short(size)
        self.offset = end
        return self.data[start:end]

    def end(self) -> None:
        """Raise ProtocolError when bytes are left over."""
        if self.left:
            raise self.error(f"is followed by {self.left} bytes that belong to no field")


class WireType(ABC, Generic[T]):
    """How one field stands on the wire: ``read`` beside ``write``, under the documentation's ``name``."""

    name: str
    least = 1  # no value takes fewer bytes than this: what bounds a count before it is believed

    @abstractmethod
    def read(self, reader: Reader) -> T: ...

    @abstractmethod
    def write(self, out: bytearray, value: T) -> None: ...


class Integer(WireType[int]):
    """Int8, Int16, Int32, Int64 in network byte order."""

    def __init__(self, name: str, code: str, low: int | None = None, high: int | None = None) -> None:
        self.name = name
        self._struct = struct.Struct(">" + code)
        self.least = self._struct.size
        bits = 8 * self.least
        floor = 0 if code.isupper() else -(1 << (bits - 1))
        self.low = floor if low is None else low
        self.high = floor + (1 << bits) - 1 if high is None else high

    def read(self, reader: Reader) -> int:
        try:
            value: int = self._struct.unpack_from(reader.data, reader.offset)[0]
        except struct.error:
            raise reader.short(self.least) from None
        if not self.low <= value <= self.high:
            raise reader.error(f"is {value}, which does not lie between {self.low} and {self.high}")
        reader.offset += self.least
        return value

    def write(self, out: bytearray, value: int) -> None:
        if not self.low <= value <= self.high:
            raise ProtocolError(f"{value} does not lie between {self.low} and {self.high}, as {self.name} must.")
        out += self._struct.pack(value)


class Position(WireType[LSN]):
    """Int64 that is an LSN; ``valid`` refuses 0/0, as src/backend/replication/logical/proto.c does."""

    name = "Int64 (XLogRecPtr)"
    least = 8

    def __init__(self, *, valid: bool = False) -> None:
        self._integer = Integer(self.name, "Q", low=int(valid))
        self.low = self._integer.low

    def read(self, reader: Reader) -> LSN:
        return LSN(self._integer.read(reader))

    def write(self, out: bytearray, value: LSN) -> None:
        self._integer.write(out, value)


class Boolean(WireType[bool]):
    """Int8 that is 0 or 1."""

    name = "Int8"

    def read(self, reader: Reader) -> bool:
        value = reader.peek()
        if value > 1:
            raise reader.error(f"is {value}, neither 0 nor 1")
        reader.offset += 1
        return value == 1

    def write(self, out: bytearray, value: bool) -> None:
        out.append(1 if value else 0)


class Choice(WireType[str]):
    """Byte1: one of the ASCII characters ``allowed``."""

    name = "Byte1"

    def __init__(self, allowed: str) -> None:
        self.allowed = allowed
        self._characters = {ord(character): character for character in allowed}

    def read(self, reader: Reader) -> str:
        value = self._characters.get(reader.peek())
        if value is None:
            raise reader.error(f"is {chr(reader.peek())!r}, which is none of {', '.join(map(repr, self.allowed))}")
        reader.offset += 1
        return value

    def write(self, out: bytearray, value: str) -> None:
        if len(value) != 1 or value not in self.allowed:
            raise ProtocolError(f"{value!r} is none of {', '.join(map(repr, self.allowed))}.")
        out += value.encode("ascii")


class Text(WireType[str]):
    """String: null-terminated UTF-8; ``escape`` keeps bytes that are none (a server that has not yet agreed on one)."""

    name = "String"

    def __init__(self, *, escape: bool = False) -> None:
        self._errors = "surrogateescape" if escape else "strict"

    def read(self, reader: Reader) -> str:
        end = reader.data.find(b"\0", reader.offset)
        if end < 0:
            raise reader.error("has no terminating null byte")
        try:
            value = reader.data[reader.offset : end].decode("utf-8", self._errors)
        except UnicodeDecodeError as error:
            reader.offset += error.start
            raise reader.error("is not UTF-8 (client_encoding must be UTF8)") from None
        reader.offset = end + 1
        return value

    def write(self, out: bytearray, value: str) -> None:
        try:
            encoded = value.encode("utf-8", self._errors)
        except UnicodeEncodeError:
            raise ProtocolError("A String holds a character that UTF-8 cannot encode.") from None
        if b"\0" in encoded:
            raise ProtocolError("A String cannot hold a null byte: it would end there.")
        out += encoded + b"\0"


class Fixed(WireType[bytes]):
    """Byte n, always so many."""

    def __init__(self, size: int) -> None:
        self.name = f"Byte{size}"
        self.least = size

    def read(self, reader: Reader) -> bytes:
        return reader.take(self.least)

    def write(self, out: bytearray, value: bytes) -> None:
        if len(value) != self.least:
            raise ProtocolError(f"{self.name} needs {self.least} bytes, not {len(value)}.")
        out += value


class Bytes(WireType[bytes]):
    """Int32 n, then Byte n."""

    name = "Int32, Byten"
    least = 4

    def read(self, reader: Reader) -> bytes:
        return reader.take(LENGTH.read(reader))

    def write(self, out: bytearray, value: bytes) -> None:
        LENGTH.write(out, len(value))
        out += value


class NullableBytes(WireType[bytes | None]):
    """Int32 n, then Byte n; n = -1 is NULL."""

    name = "Int32, Byten"
    least = 4
    _length = Integer("Int32", "i", low=-1)

    def read(self, reader: Reader) -> bytes | None:
        length = self._length.read(reader)
        return None if length < 0 else reader.take(length)

    def write(self, out: bytearray, value: bytes | None) -> None:
        self._length.write(out, -1 if value is None else len(value))
        out += value or b""


class Rest(WireType[bytes]):
    """Byten to the end of the message; only as the last field."""

    name = "Byten"
    least = 0

    def read(self, reader: Reader) -> bytes:
        return reader.take(reader.left)

    def write(self, out: bytearray, value: bytes) -> None:
        out += value


class Array(WireType[tuple[T, ...]], Generic[T]):
    """A count, then so many items."""

    def __init__(self, count: Integer, item: WireType[T]) -> None:
        self.name = f"{count.name} n, n {item.name}"
        self.least = count.least
        self.count = count
        self.item = item

    def read(self, reader: Reader) -> tuple[T, ...]:
        count = self.count.read(reader)
        return read_items(reader, count, self.item)

    def write(self, out: bytearray, value: Sequence[T]) -> None:
        self.count.write(out, len(value))
        for item in value:
            self.item.write(out, item)


def read_items(reader: Reader, count: int, item: WireType[T]) -> tuple[T, ...]:
    """Read ``count`` items; a count that the remaining bytes cannot hold is refused before anything is read."""
    if not 0 <= count * item.least <= reader.left:
        raise reader.error(f"announces {count} items where {reader.left} bytes are left")
    return tuple(item.read(reader) for _ in range(count))


class Layout(WireType[T], Generic[T]):
    """The field table of a dataclass, taken from its annotations: its own reader and writer."""

    def __init__(self, cls: type[T], name: str | None = None) -> None:
        self.cls = cls
        self.name = name or cls.__name__
        hints = get_type_hints(cls, include_extras=True)
        self.fields: tuple[tuple[str, WireType[Any]], ...] = tuple(
            (field.name, wire_type(hints[field.name]))
            for field in dataclass_fields(cls)  # type: ignore[arg-type]
        )
        self.least = sum(wire.least for _, wire in self.fields)
        self._places = tuple((f"{self.name}.{name}", wire.read) for name, wire in self.fields)

    def read(self, reader: Reader) -> T:
        values: list[Any] = []
        for reader.place, read in self._places:
            values.append(read(reader))
        return self.cls(*values)

    def write(self, out: bytearray, value: T) -> None:
        for name, wire in self.fields:
            wire.write(out, getattr(value, name))


class Terminated(WireType[tuple[T, ...]], Generic[T]):
    """Items up to a zero byte, which is what no item may begin with."""

    def __init__(self, item: WireType[T]) -> None:
        self.name = f"{item.name} …, Byte1(0)"
        self.item = item

    def read(self, reader: Reader) -> tuple[T, ...]:
        items = []
        while reader.peek():
            items.append(self.item.read(reader))
        reader.offset += 1
        return tuple(items)

    def write(self, out: bytearray, value: Sequence[T]) -> None:
        for item in value:
            start = len(out)
            self.item.write(out, item)
            if not out[start]:
                raise ProtocolError(f"An item of {self.name} cannot be empty: the list would end there.")
        out.append(0)


class Optional(WireType[T | None], Generic[T]):
    """All of ``item`` or the end of the message; only as the last field."""

    least = 0

    def __init__(self, item: Layout[T]) -> None:
        self.name = f"[{item.name}]"
        self.item = item

    def read(self, reader: Reader) -> T | None:
        return self.item.read(reader) if reader.left else None

    def write(self, out: bytearray, value: T | None) -> None:
        if value is not None:
            self.item.write(out, value)


def wire_type(hint: Any) -> Any:
    """The WireType inside an annotation such as ``Int32``; raise TypeError when there is none."""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, WireType):
            return note
    raise TypeError(f"{hint!r} has no wire type in its annotation.")


LENGTH = Integer("Int32", "i", low=0)

Int8 = Annotated[int, Integer("Int8", "B")]
Int16 = Annotated[int, Integer("Int16", "h")]
Int32 = Annotated[int, Integer("Int32", "i")]
Oid = Annotated[int, Integer("Int32 (Oid)", "I")]
TransactionId = Annotated[int, Integer("Int32 (TransactionId)", "I")]
ValidTransactionId = Annotated[int, Integer("Int32 (TransactionId)", "I", low=1)]
Epoch = Annotated[int, Integer("Int32", "I")]
TimestampTz = Annotated[int, Integer("Int64 (TimestampTz)", "q")]  # microseconds since 2000-01-01 00:00 UTC
XLogRecPtr = Annotated[LSN, Position()]
ValidXLogRecPtr = Annotated[LSN, Position(valid=True)]
Flag = Annotated[bool, Boolean()]
String = Annotated[str, Text()]
Octets4 = Annotated[bytes, Fixed(4)]
LooseString = Annotated[str, Text(escape=True)]
Byten = Annotated[bytes, Bytes()]
RestOfMessage = Annotated[bytes, Rest()]
