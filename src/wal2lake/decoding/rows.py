"""The relations of one session, and rows read by them at the speed that volume needs: from the payload to lists at
once.

Every shape that a relation is announced in gets a version, and a held change keeps the version of its time: when it is
read, the relation may long have another.

A message is made into characters, one a byte, and cut up: half the price of decoding each value. Where it is not ASCII,
its values are decoded in earnest afterwards. What is not as the protocol says is noticed here by its length or kind,
and named by the caller.

Source: PostgreSQL documentation, "Logical Replication Message Formats", Insert, Update, Delete, TupleData.
"""

from __future__ import annotations

import struct
from typing import Final

from wal2lake.decoding.changes import NOT_PUBLISHED, UNCHANGED_TOAST, ChangeType, ReorderBufferChange, Row
from wal2lake.decoding.relation import Relation
from wal2lake.decoding.types import TypeNames
from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Relation as RelationMessage

_INSERT, _UPDATE, _DELETE = b"IUD"
ROW_TAGS: Final = frozenset((_INSERT, _UPDATE, _DELETE))
_KEY, _OLD, _NEW = b"KON"
_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_KIND_AT: Final = 5  # behind tag and relation id: the kind of the first tuple
_uint16 = struct.Struct(">H").unpack_from
_uint32 = struct.Struct(">I").unpack_from


class Relations:
    """``current``: by relation id; ``versions``: every shape of the session, by its version."""

    def __init__(self) -> None:
        self.current: dict[int, Relation] = {}
        self.versions: list[Relation] = []

    def announce(self, message: RelationMessage, types: TypeNames) -> None:
        """Take a Relation message; what says nothing new changes nothing."""
        relation = Relation(message, types, len(self.versions))
        known = self.current.get(message.relation_id)
        if known is None or known.message != message or known.attributes != relation.attributes:
            self.current[message.relation_id] = relation
            self.versions.append(relation)


def read_change(relation: Relation, lsn: LSN, xid: int, payload: bytes) -> ReorderBufferChange:
    """The change that an Insert, Update or Delete of ``relation`` says. Raises ProtocolError for what none says, and
    for text that is not UTF-8."""
    tag, kind, at, end, old, new = payload[0], payload[_KIND_AT : _KIND_AT + 1], _KIND_AT + 1, 0, None, None
    try:
        if kind == b"N" and tag != _DELETE:
            new, end = _read_tuple(relation, payload, at)
        elif kind in (b"K", b"O") and tag != _INSERT:
            old, end = _read_tuple(relation, payload, at)
            if kind == b"K":
                places = zip(old, relation.attributes, strict=True)
                old = [value if attribute.is_key else NOT_PUBLISHED for value, attribute in places]
            if tag == _UPDATE and payload[end] == _NEW:
                new, end = _read_tuple(relation, payload, end + 1)
    except (struct.error, IndexError):
        end = 0
    except UnicodeDecodeError:
        raise ProtocolError(
            "A value is not valid UTF-8.",
            hint="In a database of encoding SQL_ASCII nobody can tell what its bytes mean.",
            relation=str(relation),
            lsn=lsn,
            offset=_KIND_AT,
        ) from None
    if end != len(payload) or (new is None and tag != _DELETE):
        raise ProtocolError("A row is not what its Relation announced.", relation=str(relation), lsn=lsn, offset=0)
    return ReorderBufferChange(_ACTIONS[tag], lsn, xid, old, new)


def _read_tuple(relation: Relation, payload: bytes, at: int) -> tuple[Row, int]:
    """The TupleData at ``at``, and where it ends: nowhere, when it has another number of columns or no such kind."""
    count = len(relation.attributes)
    if _uint16(payload, at)[0] != count:
        raise IndexError
    characters = payload.decode("latin-1")
    values: Row = []
    add = values.append
    at += 2
    for _ in range(count):
        kind = payload[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _uint32(payload, at + 1)[0]
            add(characters[start:at])
        elif kind == _NULL:
            add(None)
            at += 1
        elif kind == _UNCHANGED:
            add(UNCHANGED_TOAST)
            at += 1
        elif kind == _BINARY:
            start = at + 5
            at = start + _uint32(payload, at + 1)[0]
            add(payload[start:at])
        else:
            raise IndexError
    if not characters.isascii():
        values = [
            value.encode("latin-1").decode() if isinstance(value, str) and not value.isascii() else value
            for value in values
        ]
    return values, at


_ACTIONS: Final = {ord(action.value): action for action in ChangeType}
