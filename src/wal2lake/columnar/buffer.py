"""Bytes are gathered for all rows at once, out of a block small enough to stay in the processor's cache.

A ``ByteBuffer`` has MARGIN readable bytes before and after everything that a value can occupy (behind rows of COPY:
SPAN), so that a window around the first or last value needs no care. Positions beyond are clipped, never followed: a
hostile length reads garbage inside the buffer until the check at the end of the tuple finds it.

To gather eight bytes of each row costs what sixty cost, and more than most of what is done with them. So what stands
side by side in a row can be gathered at once (``near``), and its parts are views of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.framing import Framed
from wal2lake.errors import ProtocolError

MARGIN: Final = 8
SPAN: Final = 256  # the most bytes of a row that are gathered at once
BLOCK_BYTES: Final = 768 << 10  # the cache of one core; also keeps arrays below malloc's threshold for fresh pages
BLOCK_ROWS: Final = 8192
_PAD: Final = bytes(MARGIN)
_FAR_PAD: Final = bytes(SPAN)

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[Any]  # uint64, which numpy's stubs take for signed beside a Python int
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class PgoutputDecodeError(ProtocolError):
    """TupleData or a COPY row is not what the protocol says; ``offset`` is in bytes into its message."""


class ByteBuffer:
    """A buffer as bytes, with a little-endian 64-bit window at every byte.

    ``ascii``: the part given to ``fetch`` is known to have no byte with its high bit set.
    """

    __slots__ = ("_words", "ascii", "bytes", "data")

    def __init__(self, data: pa.Buffer) -> None:
        self.data = data
        self.bytes: Bytes = np.frombuffer(data, np.uint8)
        self._words: Words = np.ndarray((data.size - 7,), "<u8", data, strides=(1,))
        self.ascii = False

    def fetch(self, first: int, end: int) -> Self:
        """Read first … end once in order: the gathers after that find it in the cache and are twice as fast."""
        self.ascii = bool(self.bytes[first:end].max(initial=0) < 0x80)
        return self

    def window(self, position: Positions) -> Words:
        """The eight bytes from each position (≥ 0) on, the first in the lowest byte."""
        return self._words[np.minimum(position, len(self._words) - 1)]

    def byte(self, position: Positions, offset: int = 0) -> Bytes:
        """The byte ``offset`` behind each position."""
        return self.bytes[offset:].take(position, mode="clip")

    def lengths(self, position: Positions, offset: int = 0) -> Positions:
        """The Int32 ``offset`` behind each position, taken as unsigned; quicker when all are below 256."""
        high = self.byte(position, offset) | self.byte(position, offset + 1) | self.byte(position, offset + 2)
        if high.any():
            return self.window(position + offset).astype(np.uint32).byteswap().astype(np.int64)
        return self.byte(position, offset + 3).astype(np.int64)

    def near(self, position: Positions, size: int) -> Near:
        """The ``size`` (≤ SPAN) bytes from each position (≥ 0) on."""
        anywhere = np.ndarray((self.data.size - size + 1,), f"V{size}", self.data, strides=(1,))
        return Near(anywhere[np.minimum(position, len(anywhere) - 1)], size)


@dataclass(frozen=True, slots=True)
class Near:
    """``size`` bytes of each of N rows, gathered; its parts from byte ``at`` of all rows on are views."""

    rows: npt.NDArray[np.void]
    size: int
    at: int = 0

    def behind(self, count: int) -> Near:
        """The same, so many bytes further on."""
        return Near(self.rows, self.size, self.at + count)

    def numbers(self, dtype: str, offset: int = 0) -> npt.NDArray[Any] | None:
        """The value of numpy ``dtype`` ``offset`` behind ``at`` in each row; None where that was not gathered."""
        at = self.at + offset
        if not len(self.rows):
            return np.empty(0, dtype)
        if at + np.dtype(dtype).itemsize > self.size:
            return None
        return np.ndarray((len(self.rows),), dtype, self.rows, at, (self.size,))


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """N messages in ascending order, at ``start`` … ``end`` (exclusive) of ``source``; ``lsn`` where it is known."""

    source: ByteBuffer
    start: Positions
    end: Positions
    lsn: npt.NDArray[np.uint64] | None
    relation: str

    @classmethod
    def of(
        cls, payload: pa.BinaryArray, relation: str, rows: Positions, lsn: npt.NDArray[np.uint64] | None
    ) -> MessageBatch:
        """The ``rows`` of a payload column without a copy, unless one lies within MARGIN of the buffer's ends."""
        _, offsets_buffer, data = payload.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[payload.offset :]
        start, end = offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64)
        first, last = (int(start[0]), int(end[-1])) if len(rows) else (0, 0)
        if first < MARGIN or last + MARGIN > data.size:
            data = pa.py_buffer(_PAD + memoryview(data or b"")[first:last] + _PAD)
            start, end = start - first + MARGIN, end - first + MARGIN
            first, last = MARGIN, last - first + MARGIN
        source = ByteBuffer(data)
        if 2 * int((end - start).sum()) > last - first:  # not when most of it belongs to other relations
            source.fetch(first, last)
        return cls(source, start, end, lsn, relation)

    @classmethod
    def framed(cls, piece: Framed, relation: str) -> MessageBatch:
        """Payloads that came together, with SPAN bytes behind them: without a copy where they came so."""
        first, last = (int(piece.begins[0]), int(piece.ends[-1])) if len(piece) else (0, 0)
        if first < MARGIN or last + SPAN > len(piece.data):
            data = bytearray().join((_PAD, memoryview(piece.data)[first:last], _FAR_PAD))
            piece = Framed(data, piece.begins - first + MARGIN, piece.ends - first + MARGIN)
        return cls(ByteBuffer(pa.py_buffer(piece.data)), piece.begins, piece.ends, None, relation)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Positions) -> Self:
        """Some of the messages, in the same source."""
        lsn = None if self.lsn is None else self.lsn[rows]
        return type(self)(self.source, self.start[rows], self.end[rows], lsn, self.relation)

    def lsn_of(self, row: int) -> int | None:
        """The LSN of a message, for an error's place."""
        return None if self.lsn is None else int(self.lsn[row])

    def malformed(self, row: int, position: int, reason: str, column: str | None = None) -> PgoutputDecodeError:
        """The error for the byte at ``position`` of the source."""
        return PgoutputDecodeError(
            f"Malformed message: {reason}.",
            relation=self.relation,
            column=column,
            offset=position - int(self.start[row]),
            lsn=self.lsn_of(row),
        )


def blocks(payload: pa.BinaryArray, rows: Positions) -> Iterator[slice]:
    """Cut ``rows`` of a payload column into parts (one at least) of up to BLOCK_ROWS and about BLOCK_BYTES."""
    if not len(rows):
        yield slice(0, 0)
        return
    offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset :]
    total = int(np.subtract(offsets[rows + 1], offsets[rows], dtype=np.int64).sum())
    size = max(1, min(BLOCK_ROWS, len(rows) * BLOCK_BYTES // max(total, 1)))
    for first in range(0, len(rows), size):
        yield slice(first, first + size)
