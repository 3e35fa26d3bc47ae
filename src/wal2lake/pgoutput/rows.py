"""Insert, Update and Delete at the speed that volume needs: straight from the payload to lists of values.

What is not as the protocol says gives None, and the caller has PgoutputSession say what is wrong.

Source: PostgreSQL documentation, "Logical Replication Message Formats", Insert, Update, Delete, TupleData.
"""

from __future__ import annotations

import struct
from typing import Final, Generic, TypeVar

INSERT, UPDATE, DELETE = b"IUD"
ROW_TAGS: Final = frozenset((INSERT, UPDATE, DELETE))
KEY, OLD, NEW = b"KON"
_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_uint16 = struct.Struct(">H").unpack_from
_uint32 = struct.Struct(">I").unpack_from

T = TypeVar("T")


class RowReader(Generic[T]):
    """Reads the tuples of one relation's messages; ``unchanged`` is what stands for unchanged TOAST."""

    __slots__ = ("_count", "_unchanged")

    def __init__(self, columns: int, unchanged: T) -> None:
        self._count = columns
        self._unchanged = unchanged

    def read(
        self, payload: bytes, at: int
    ) -> tuple[int, list[str | bytes | T | None] | None, list[str | bytes | T | None] | None] | None:
        """What follows the relation's id at ``at``: kind of the old tuple (0, KEY or OLD), old, new. None: malformed.

        Raises UnicodeDecodeError for text that is not UTF-8.
        """
        tag, old_kind, old, new = payload[0], 0, None, None
        try:
            kind = payload[at]
            if kind != NEW and tag != INSERT:
                if kind not in (KEY, OLD):
                    return None
                old_kind = kind
                old, at = self._tuple(payload, at + 1)
                kind = payload[at] if tag == UPDATE else 0
            if tag != DELETE:
                if kind != NEW:
                    return None
                new, at = self._tuple(payload, at + 1)
            elif old is None:
                return None
        except (struct.error, IndexError, _MalformedError):
            return None
        return (old_kind, old, new) if at == len(payload) else None

    def _tuple(self, payload: bytes, at: int) -> tuple[list[str | bytes | T | None], int]:
        """The whole message is made into characters, one a byte, and cut up: half the price of decoding each value.
        What is not ASCII is then decoded in earnest."""
        if _uint16(payload, at)[0] != self._count:
            raise _MalformedError
        characters = payload.decode("latin-1")
        values: list[str | bytes | T | None] = []
        add = values.append
        at += 2
        for _ in range(self._count):
            kind = payload[at]
            if kind == _TEXT:
                start = at + 5
                at = start + _uint32(payload, at + 1)[0]
                add(characters[start:at])
            elif kind == _NULL:
                add(None)
                at += 1
            elif kind == _UNCHANGED:
                add(self._unchanged)
                at += 1
            elif kind == _BINARY:
                start = at + 5
                at = start + _uint32(payload, at + 1)[0]
                add(payload[start:at])
            else:
                raise _MalformedError
        if not characters.isascii():
            values = [
                value.encode("latin-1").decode() if isinstance(value, str) and not value.isascii() else value
                for value in values
            ]
        return values, at


class _MalformedError(Exception):
    """Internal: the tuple is not what the protocol says."""
