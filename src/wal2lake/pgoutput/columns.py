"""The columns of a TupleData as they lie in a message: one pass, one slice each, for who reads many rows one by one.

The typed codec (tuples.py) says where a message is wrong; this reader only notices that it is. So a caller compares the
end that it is given with the message's, and has the codec read again what does not fit.

Source: PostgreSQL documentation, "Logical Replication Message Formats", TupleData.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_COUNT: Final = struct.Struct(">H").unpack_from
_LENGTH: Final = struct.Struct(">xI").unpack_from  # behind the kind
_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"


class Columns(NamedTuple):
    """``values``: None for NULL, and for what is in ``unchanged``, the indexes of TOASTed values that did not change.
    ``binary``: the indexes of values in binary form; all others are text. ``end``: where what follows begins."""

    values: list[bytes | None]
    end: int
    unchanged: list[int]
    binary: list[int]


_NONE: Final[list[int]] = []


def read_columns(payload: bytes, at: int) -> Columns:
    """The columns of the TupleData at offset ``at``. Raises IndexError, struct.error or ValueError for what is none;
    an ``end`` beyond the payload's says that it was cut off."""
    (count,) = _COUNT(payload, at)
    at += 2
    values: list[bytes | None] = []
    append = values.append
    unchanged, binary = _NONE, _NONE
    for _ in range(count):
        kind = payload[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _LENGTH(payload, at)[0]
            append(payload[start:at])
        elif kind == _NULL:
            at += 1
            append(None)
        elif kind == _BINARY:
            start = at + 5
            at = start + _LENGTH(payload, at)[0]
            if binary is _NONE:
                binary = []
            binary.append(len(values))
            append(payload[start:at])
        elif kind == _UNCHANGED:
            at += 1
            if unchanged is _NONE:
                unchanged = []
            unchanged.append(len(values))
            append(None)
        else:
            raise ValueError("no kind of column")
    return Columns(values, at, unchanged, binary)
