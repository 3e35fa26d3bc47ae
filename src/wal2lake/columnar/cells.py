"""The cells of one column: what a decoder is given, how it refuses a cell, and how it hands back an Arrow array.

A cell is a start and a length in the source; decoders in text.NULL_AWARE may get NULLs among them, others never do.
What a decoder cannot take it refuses by CellFault, with the cell's index; who called it knows the relation, the column
and the LSN. No cell's content enters a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.buffer import ByteBuffer, Bytes, Mask, Near, Positions, Words
from wal2lake.errors import RESYNC, UnrepresentableError

Policy = Literal["error", "null", "text"]
_NOT_UTF8: Final = "it is not UTF-8"
_NOT_UTF8_CURE: Final = (
    "The database's encoding does not say what its bytes mean. Mend the text at the source, or leave the column out of"
    f" the publication. {RESYNC}"
)


class ShapeError(UnrepresentableError):
    """A value that its column holds as text alone: an array of another shape than its lists, which no policy makes
    NULL, or one without a place in its type, where the policy for those is "text"."""


class CellFault(Exception):
    """Cell ``index`` is malformed, or has no place in the column's lake type (``unrepresentable``; ``shape``: for it is
    an array of another shape), or its type was ``changed`` since its column was given one.

    ``hint``: its cure, where it has one of its own."""

    def __init__(
        self,
        index: int,
        reason: str,
        hint: str | None = None,
        *,
        unrepresentable: bool = False,
        shape: bool = False,
        changed: bool = False,
    ) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason
        self.hint = hint
        self.unrepresentable = unrepresentable
        self.shape = shape
        self.changed = changed


@dataclass(frozen=True, slots=True)
class Cells:
    """M values at ``start``, ``length`` bytes each, all inside the source's margins, in ascending order.

    ``unrepresentable``: whether such a value is a fault or becomes NULL. ``null``: the cells that are NULL, if any
    (their length is 0). ``near``: the bytes from ``start`` on, where they have been gathered.
    """

    source: ByteBuffer
    start: Positions
    length: Positions
    unrepresentable: Policy = "error"
    null: Mask | None = None
    near: Near | None = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Positions:
        """Exclusive."""
        return self.start + self.length

    def window(self, offset: int = 0) -> Words:
        """The eight bytes from ``offset`` into each cell on; they may reach into what follows the cell."""
        words = None if self.near is None else self.near.numbers("<u8", offset)
        return self.source.window(self.start + offset) if words is None else words.copy()

    def first_byte(self) -> Bytes:
        """The first byte of each cell; of an empty cell, what follows it."""
        return self.source.byte(self.start)

    def without(self, prefix: int) -> Cells:
        """The same cells but for their first ``prefix`` bytes (which they must have)."""
        return Cells(self.source, self.start + prefix, self.length - prefix, self.unrepresentable)

    def refuse(self, bad: npt.NDArray[np.generic], reason: str) -> None:
        """Raise CellFault for the first cell where ``bad`` is not zero."""
        if bad.any():
            raise CellFault(int((bad != 0).argmax()), reason)

    def refuse_length(self, expected: int) -> None:
        """Raise CellFault unless every cell has this many bytes."""
        self.refuse(self.length != expected, f"a value of its type has {expected} bytes")

    def missing(self, homeless: Mask, what: str) -> Mask | None:
        """The cells to become NULL because nothing can hold ``what``, or None; raise CellFault if that is an error."""
        if self.null is not None:
            homeless = homeless & ~self.null
        if not homeless.any():
            return None
        if self.unrepresentable != "null":
            raise CellFault(int(homeless.argmax()), what, unrepresentable=True)
        return homeless

    def take(self, rows: Positions) -> Cells:
        """Some of the cells."""
        return Cells(self.source, self.start[rows], self.length[rows], self.unrepresentable)

    def gathered(self) -> tuple[pa.Buffer, pa.Buffer]:
        """The cells' bytes back to back: (int32 offsets, data)."""
        return gather(self.source, (self.start, self.end))

    def binary(self) -> pa.BinaryArray:
        """The cells as they are."""
        return pa.Array.from_buffers(pa.binary(), len(self), [None, *self.gathered()])

    def unchecked_strings(self, missing: Mask | None = None) -> pa.StringArray:
        """The cells as they are, for a cast that refuses what is no ASCII; NULL where ``missing``."""
        if missing is None:
            missing = self.null
        elif self.null is not None:
            missing = missing | self.null
        return pa.Array.from_buffers(pa.string(), len(self), [_validity(missing), *self.gathered()])

    def strings(self) -> pa.StringArray:
        """The cells as they are, checked to be UTF-8: at once when all is ASCII."""
        offsets, data = self.gathered()
        ascii_only = self.source.ascii or np.frombuffer(data, np.uint8).max(initial=0) < 0x80
        arrow = pa.string() if ascii_only else pa.binary()
        array = pa.Array.from_buffers(arrow, len(self), [_validity(self.null), offsets, data])
        return array if ascii_only else cast(array, pa.string(), _NOT_UTF8, _NOT_UTF8_CURE)


Decoder = Callable[[Cells, pa.DataType], pa.Array]


def cast(array: pa.Array, arrow: pa.DataType, reason: str, hint: str | None = None) -> pa.Array:
    """Arrow's cast; raise CellFault for the first cell that it refuses."""
    whole = try_cast(array, arrow)
    if whole is not None:
        return whole
    first, last = 0, len(array)  # the first cells up to `first` cast, those up to `last` do not
    while last - first > 1:
        middle = (first + last) // 2
        if try_cast(array.slice(first, middle - first), arrow) is None:
            last = middle
        else:
            first = middle
    raise CellFault(first, reason, hint)


def try_cast(array: pa.Array, arrow: pa.DataType) -> pa.Array | None:
    """Arrow's cast, or None where it refuses a value: its error would show the value, so it goes no further."""
    try:
        return array.cast(arrow)
    except pa.ArrowInvalid:
        return None


def gather(source: ByteBuffer, bounds: Sequence[Positions]) -> tuple[pa.Buffer, pa.Buffer]:
    """Pieces of the source back to back: (int32 offsets, data); ``bounds``: start, end, start, end … of a row's pieces.

    The source seen as pieces and the gaps between them is a binary array without a copy; ``take`` copies the pieces.
    """
    # int32[rows, bounds]; read in memory's order these are offsets: piece, gap, piece, gap …
    edges = np.empty((len(bounds[0]), len(bounds)), np.int32)
    for place, positions in enumerate(bounds):
        edges[:, place] = positions
    if not edges.size:
        return pa.py_buffer(bytes(edges.itemsize)), pa.py_buffer(b"")
    view = pa.Array.from_buffers(pa.binary(), edges.size - 1, [None, pa.py_buffer(edges), source.data])
    _, offsets, data = view.take(pa.array(np.arange(0, edges.size, 2, dtype=np.uint32))).buffers()
    return offsets, data


def _validity(missing: Mask | None) -> pa.Buffer | None:
    return None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))


def fixed(values: npt.NDArray[np.generic], arrow: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """An array of a fixed-width type whose buffer is ``values``; NULL where ``missing``."""
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(arrow, len(values), [_validity(missing), content])
