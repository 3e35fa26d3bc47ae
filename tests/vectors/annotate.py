"""A message field by field: which bytes are what, by the same tables that the codec reads; for the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from typing import Any, Final, NamedTuple

from wal2lake.pgoutput.messages import TruncateLayout
from wal2lake.pgoutput.tuples import NewTupleType, OldTuple, OldTupleType, TupleColumnType, TupleData
from wal2lake.wire.fields import (
    LENGTH,
    Array,
    Bytes,
    Choice,
    Int8,
    Layout,
    NullableBytes,
    Oid,
    Optional,
    Reader,
    Terminated,
    WireType,
    wire_type,
)

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_VALUE: Final = 100
WIDTH: Final = 16  # bytes on a line


class Part(NamedTuple):
    """Bytes that belong together: the field's name, its wire type and its value."""

    data: bytes
    name: str
    type: str
    value: str


def read_part(wire: WireType[Any], reader: Reader, name: str, type_name: str | None = None) -> Part:
    """One field that has no parts of its own."""
    start = reader.offset
    value = wire.read(reader)
    return Part(reader.data[start : reader.offset], name, type_name or wire.name, show(wire, value))


def show(wire: WireType[Any], value: Any) -> str:
    """A value as PostgreSQL would print it."""
    if "TimestampTz" in wire.name:
        return (EPOCH + timedelta(microseconds=value)).isoformat(" ")
    if "XLogRecPtr" in wire.name:
        return str(value)
    return "NULL" if value is None else _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


@singledispatch
def parts(wire: WireType[Any], reader: Reader, name: str) -> Iterator[Part]:
    """The parts of a field, in the wire's order."""
    yield read_part(wire, reader, name)


@parts.register
def _(wire: Layout, reader: Reader, name: str) -> Iterator[Part]:  # type: ignore[type-arg]
    for field, field_type in wire.fields:
        yield from parts(field_type, reader, f"{name}.{field}" if name else field)


@parts.register
def _(wire: TruncateLayout, reader: Reader, name: str) -> Iterator[Part]:
    count = read_part(LENGTH, reader, "number of relations")
    yield count
    yield read_part(wire_type(Int8), reader, "options")
    for index in range(int(count.value)):
        yield read_part(wire_type(Oid), reader, f"relation_ids[{index}]")


@parts.register
def _(wire: Array, reader: Reader, name: str) -> Iterator[Part]:  # type: ignore[type-arg]
    count = read_part(wire.count, reader, f"number of {name}")
    yield count
    for index in range(int(count.value)):
        yield from parts(wire.item, reader, f"{name}[{index}]")


@parts.register
def _(wire: Terminated, reader: Reader, name: str) -> Iterator[Part]:  # type: ignore[type-arg]
    index = 0
    while reader.data[reader.offset]:
        yield from parts(wire.item, reader, f"{name}[{index}]")
        index += 1
    yield Part(reader.take(1), f"end of {name}", "Byte1(0)", "")


@parts.register
def _(wire: Optional, reader: Reader, name: str) -> Iterator[Part]:  # type: ignore[type-arg]
    if reader.left:
        yield from parts(wire.item, reader, name)


@parts.register
def _(wire: NewTupleType, reader: Reader, name: str) -> Iterator[Part]:
    yield read_part(Choice("N"), reader, f"{name} tuple follows")
    yield from parts(Layout(TupleData), reader, name)


@parts.register
def _(wire: OldTupleType, reader: Reader, name: str) -> Iterator[Part]:
    if reader.data[reader.offset] in b"KO":
        yield from parts(Layout(OldTuple), reader, name)


@parts.register
def _(wire: TupleColumnType, reader: Reader, name: str) -> Iterator[Part]:
    kind = read_part(Choice("nutb"), reader, f"{name}.kind")
    yield kind
    if kind.value in ("'t'", "'b'"):
        yield from parts(Bytes(), reader, f"{name}.data")


@parts.register(Bytes)
@parts.register(NullableBytes)
def _(wire: WireType[Any], reader: Reader, name: str) -> Iterator[Part]:
    start = reader.offset
    value = wire.read(reader)
    yield Part(reader.data[start : start + 4], f"length of {name}", "Int32", str(-1 if value is None else len(value)))
    if value:
        yield Part(value, name, "Byten", _short(repr(value)))


def annotated(found: list[Part]) -> str:
    """Lines of offset, hexadecimal bytes and what they are; a long field takes several lines."""
    lines, offset = [], 0
    for part in found:
        text = f"{part.name}  {part.type}  {part.value}".rstrip()
        for start in range(0, len(part.data), WIDTH):
            piece = part.data[start : start + WIDTH].hex(" ")
            lines.append(f"{offset + start:4}  {piece:<{3 * WIDTH}} {'' if start else text}".rstrip())
        offset += len(part.data)
    return "\n".join(lines)


def bytes_of(text: str) -> bytes:
    """The inverse of ``annotated``: the bytes of its lines."""
    columns = (line[6 : 6 + 3 * WIDTH] for line in text.splitlines())
    return b"".join(map(bytes.fromhex, columns))
