"""The rows that COPY carries, and their binary format; NULL is None, and never an empty value.

A reader takes bytes in any pieces and gives whole rows, of limited size; values stay bytes. The text formats are in
copytext.py.

Source: PostgreSQL documentation, COPY, "File Formats"; src/backend/commands/copyto.c, copyfromparse.c.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from wal2lake.errors import ProtocolError
from wal2lake.wire.fields import Int16, Int32, NullableBytes, Reader, wire_type

Row = tuple[bytes | None, ...]
ROW_LIMIT: Final = (1 << 30) - 1  # MaxAllocSize: no server builds a larger row
SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_FLAG_OIDS: Final = 1 << 16
_CRITICAL: Final = 0xFFFF0000
_INT16, _INT32, _VALUE = wire_type(Int16), wire_type(Int32), NullableBytes()


class RowReader(ABC):
    """Bytes in, rows out; offsets in errors count from the stream's first byte."""

    def __init__(self, limit: int = ROW_LIMIT) -> None:
        self.limit = limit
        self.ended = False
        self._buffer = bytearray()
        self._offset = 0

    def feed(self, data: bytes | memoryview) -> list[Row]:
        """The rows that are whole now; raise ProtocolError for what is none, or a row beyond the limit."""
        if self.ended and data:
            raise self._error("Data follows the end of the COPY.", 0)
        self._buffer += data
        rows: list[Row] = []
        if self._may_complete_row(data):
            rows, used = self._rows(self._buffer)
            del self._buffer[:used]
            self._offset += used
        if len(self._buffer) > self.limit:
            raise self._error(f"A row is longer than {self.limit} bytes.", 0)
        return rows

    def close(self) -> None:
        """The stream is over; raise ProtocolError when it was cut within a row."""
        if self._buffer or not self._may_end():
            raise self._error("The COPY ends within a row.", len(self._buffer))

    @abstractmethod
    def _may_complete_row(self, data: bytes | memoryview) -> bool:
        """Whether the piece ``data``, just buffered, may have made a row whole: looking again has its price."""

    @abstractmethod
    def _rows(self, data: bytearray) -> tuple[list[Row], int]:
        """The whole rows of ``data``, all that is buffered, and how many bytes they took."""

    def _may_end(self) -> bool:
        return True

    def _error(self, problem: str, at: int) -> ProtocolError:
        return ProtocolError(problem, offset=self._offset + at)


class BinaryRowReader(RowReader):
    """COPY … (FORMAT binary): a header, rows, a trailer; servers frame each in one CopyData."""

    def __init__(self, limit: int = ROW_LIMIT) -> None:
        super().__init__(limit)
        self._begun = False
        self._wanted = 0  # no row is whole before the buffer holds so many bytes

    def _may_complete_row(self, data: bytes | memoryview) -> bool:
        return len(self._buffer) >= self._wanted

    def _may_end(self) -> bool:
        return self.ended

    def _rows(self, data: bytearray) -> tuple[list[Row], int]:
        rows: list[Row] = []
        reader = Reader(data)
        used = 0 if self._begun else self._header(data)
        while self._begun and not self.ended:
            end = self._row_end(data, used)
            if end > len(data):
                self._wanted = end - used
                return rows, used
            self.ended = end - used == 2 and data[used] == 0xFF
            if not self.ended:
                reader.offset = used
                rows.append(tuple(_VALUE.read(reader) for _ in range(_INT16.read(reader))))
            used = end
        self._wanted = 0
        if self.ended and used < len(data):
            raise self._error("Data follows the end of the COPY.", used)
        return rows, used

    def _header(self, data: bytearray) -> int:
        """The header's size once it is whole, else 0."""
        if not data.startswith(SIGNATURE[: len(data)]):
            raise self._error("This is no COPY data in binary format: its signature is another.", 0)
        if len(data) < len(SIGNATURE) + 8:
            return 0
        flags, extension = (int.from_bytes(data[at : at + 4], "big") for at in (11, 15))
        if flags & _CRITICAL:
            oids = " (OIDs, of PostgreSQL 11 and before)" if flags & _FLAG_OIDS else ""
            raise self._error(f"The COPY has critical flags that nothing here knows{oids}.", 11)
        if extension > self.limit:
            raise self._error(f"The header announces {extension} bytes more.", 15)
        self._begun = len(data) >= len(SIGNATURE) + 8 + extension
        return len(SIGNATURE) + 8 + extension if self._begun else 0

    def _row_end(self, data: bytearray, start: int) -> int:
        """Where the row at ``start`` ends, or at least how far it must be read on; the trailer is a row of 2 bytes.

        Every field that is not there yet takes 4 bytes or more: in how many pieces a row comes, it is looked at seldom.
        """
        end = start + 2
        if len(data) < end:
            return end
        count = int.from_bytes(data[start:end], "big", signed=True)
        if count < -1:
            raise self._error(f"A row announces {count} fields.", start)
        for left in range(count, 0, -1):
            if len(data) < end + 4:
                return end + 4 * left
            length = int.from_bytes(data[end : end + 4], "big", signed=True)
            if length < -1:
                raise self._error(f"A field announces {length} bytes.", end)
            end += 4 + max(length, 0)
            if end - start > self.limit:
                raise self._error(f"A row is longer than {self.limit} bytes.", start)
        return end


def binary_header() -> bytes:
    """The signature, no flags, no extension."""
    return SIGNATURE + bytes(8)


def write_binary_row(row: Sequence[bytes | None]) -> bytes:
    """One row; raise ProtocolError when it has more fields than Int16 can count."""
    out = bytearray()
    _INT16.write(out, len(row))
    for value in row:
        _VALUE.write(out, value)
    return bytes(out)


def binary_trailer() -> bytes:
    """The row of -1 fields that ends the data."""
    return b"\xff\xff"
