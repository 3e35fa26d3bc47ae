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


class VectorError(ValueError):
    """A deletion vector that is damaged, or of a form that this package does not know: the rows cannot be told."""


def encode(positions: Positions) -> bytes:
    """The vector of these row positions, each below 2^63, in any order."""
    bitmap = BitMap64(array("Q", np.ascontiguousarray(positions, np.uint64).tobytes()))
    bitmap.run_optimize()
    return _HEAD.pack(MAGIC) + bytes(bitmap.serialize())


def decode(data: bytes) -> Positions:
    """int64[cardinality], strictly rising. Raises VectorError for anything else than a vector of this form."""
    if len(data) < _HEAD.size or _HEAD.unpack_from(data)[0] != MAGIC:
        raise VectorError("The deletion vector does not begin with the portable form's magic number.")
    try:
        found = np.frombuffer(BitMap64.deserialize(data[_HEAD.size :]).to_array(), np.uint64)
    except (ValueError, IndexError) as error:
        raise VectorError("The deletion vector is no Roaring bitmap of 64 bits.") from error
    positions: Positions = found.astype(np.int64)
    if (np.diff(positions) <= 0).any() or (len(positions) and positions[0] < 0):
        raise VectorError("The deletion vector's positions do not rise.")
    return positions
