"""TupleData: NULL, unchanged TOAST and a value (empty ones too) are three kinds that nothing may mix up.

Source: PostgreSQL documentation, "Logical Replication Message Formats", TupleData; proto.c, logicalrep_write_tuple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.wire.fields import LENGTH, Array, Choice, Int16, Layout, Reader, WireType, wire_type

KINDS: Final = "nutb"  # NULL, unchanged TOAST, text, binary


class TupleColumn(NamedTuple):
    """One column: ``kind`` 'n' NULL, 'u' unchanged TOAST (both without ``data``), 't' text, 'b' binary (type_send)."""

    kind: str
    data: bytes | None = None


NULL: Final = TupleColumn("n")
UNCHANGED: Final = TupleColumn("u")


class TupleColumnType(WireType[TupleColumn]):
    """Byte1 kind; then, for 't' and 'b', Int32 length and the bytes."""

    name = "TupleColumn"
    _kind = Choice(KINDS)

    def read(self, reader: Reader) -> TupleColumn:
        kind = self._kind.read(reader)
        if kind == "n":
            return NULL
        return UNCHANGED if kind == "u" else TupleColumn(kind, reader.take(LENGTH.read(reader)))

    def write(self, out: bytearray, value: TupleColumn) -> None:
        self._kind.write(out, value.kind)
        if (value.data is None) != (value.kind in "nu"):
            raise ProtocolError(f"A column of kind {value.kind!r} has data exactly when it is 't' or 'b'.")
        if value.data is not None:
            LENGTH.write(out, len(value.data))
            out += value.data


@dataclass(frozen=True, slots=True)
class TupleData:
    """The published columns of one row, in the order of its Relation."""

    columns: Annotated[tuple[TupleColumn, ...], Array(wire_type(Int16), TupleColumnType())]


@dataclass(frozen=True, slots=True)
class OldTuple:
    """The row before: ``kind`` 'K' only the replica identity's columns (others are NULL), 'O' all of them."""

    kind: Annotated[str, Choice("KO")]
    columns: Annotated[tuple[TupleColumn, ...], Array(wire_type(Int16), TupleColumnType())]


class NewTupleType(WireType[TupleData]):
    """Byte1('N'), then TupleData."""

    name = "Byte1('N'), TupleData"
    _tag = Choice("N")
    _tuple = Layout(TupleData)

    def read(self, reader: Reader) -> TupleData:
        self._tag.read(reader)
        return self._tuple.read(reader)

    def write(self, out: bytearray, value: TupleData) -> None:
        self._tag.write(out, "N")
        self._tuple.write(out, value)


class OldTupleType(WireType[OldTuple | None]):
    """Nothing, or Byte1('K') or Byte1('O') and TupleData; what follows must begin with another byte."""

    name = "[Byte1('K' or 'O'), TupleData]"
    least = 0
    _tuple = Layout(OldTuple)

    def read(self, reader: Reader) -> OldTuple | None:
        return self._tuple.read(reader) if reader.peek() in b"KO" else None

    def write(self, out: bytearray, value: OldTuple | None) -> None:
        if value is not None:
            self._tuple.write(out, value)


NewTuple = Annotated[TupleData, NewTupleType()]
Old = Annotated[OldTuple, Layout(OldTuple)]
OldOrNone = Annotated[OldTuple | None, OldTupleType()]
