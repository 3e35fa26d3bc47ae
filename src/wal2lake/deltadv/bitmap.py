"""A RoaringBitmapArray, "portable": a magic number, then the 64-bit extension of the Roaring format.

The rule: what is read is a strictly rising list of positions, or an error; a bitmap that is not one is no bitmap.

Source: Delta transaction log protocol, "Deletion Vector Format"; RoaringFormatSpec, "Extension for 64-bit
Implementations".
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

MAGIC: Final = 1681511377
_HEAD: Final = struct.Struct("<i")

Positions = npt.NDArray[np.int64]
Marked = BitMap64  # rows of one data file, by position; adding to many costs what is added


class VectorError(ValueError):
    """A deletion vector that is damaged, or of a form that this package does not know: the rows cannot be told."""


def marked(positions: Positions) -> Marked:
    """These, each below 2^63, in any order."""
    return BitMap64(array("Q", np.ascontiguousarray(positions, np.uint64).tobytes()))


def positions_of(rows: Marked) -> Positions:
    """int64[cardinality], strictly rising."""
    return np.frombuffer(rows.to_array(), np.uint64).astype(np.int64)


def encode(rows: Marked) -> bytes:
    """The vector of these rows."""
    rows.run_optimize()
    return _HEAD.pack(MAGIC) + bytes(rows.serialize())


def decode(data: bytes) -> Marked:
    """Raises VectorError for anything else than a vector of this form."""
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] != MAGIC:
        raise VectorError("The deletion vector does not begin with the portable form's magic number.")
    try:
        rows = BitMap64.deserialize(data[_HEAD.size :])
        found = np.frombuffer(rows.to_array(), np.uint64)
    except (ValueError, IndexError) as error:
        raise VectorError("The deletion vector is no Roaring bitmap of 64 bits.") from error
    if (found[1:] <= found[:-1]).any() or (len(found) and found[-1] >= 1 << 63):
        raise VectorError("The deletion vector's positions do not rise.")
    return rows
