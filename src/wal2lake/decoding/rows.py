"""The relations of one session, and the rows that are read by them.

Every shape that a relation is announced in gets a version, and a held change keeps the version of its time: when it is
read, the relation may long have another.
"""

from __future__ import annotations

from wal2lake.decoding.changes import NOT_PUBLISHED, UNCHANGED_TOAST, Absent, ChangeType, ReorderBufferChange
from wal2lake.decoding.relation import Relation
from wal2lake.decoding.types import TypeNames
from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Relation as RelationMessage
from wal2lake.pgoutput.rows import KEY, RowReader

_ACTIONS = {ord(action.value): action for action in ChangeType}
_ID_SIZE = 5  # tag and relation id


class Relations:
    """``current``: by relation id; ``versions``: every shape of the session, by its version."""

    def __init__(self) -> None:
        self.current: dict[int, Relation] = {}
        self.versions: list[Relation] = []
        self._readers: list[RowReader[Absent]] = []

    def announce(self, message: RelationMessage, types: TypeNames) -> None:
        """Take a Relation message; what says nothing new changes nothing."""
        relation = Relation(message, types, len(self.versions))
        known = self.current.get(message.relation_id)
        if known is None or known.message != message or known.attributes != relation.attributes:
            self.current[message.relation_id] = relation
            self.versions.append(relation)
            self._readers.append(RowReader(len(relation.attributes), UNCHANGED_TOAST))

    def of(self, payload: bytes) -> Relation | None:
        """The relation that a row's message names, as it is now; None when none was announced."""
        return self.current.get(int.from_bytes(payload[1:_ID_SIZE], "big"))

    def change(self, relation: Relation, lsn: LSN, xid: int, payload: bytes) -> ReorderBufferChange | None:
        """The change that an Insert, Update or Delete says; None when it is malformed. Raises ProtocolError for text
        that is not UTF-8."""
        try:
            read = self._readers[relation.version].read(payload, _ID_SIZE)
        except UnicodeDecodeError:
            raise ProtocolError(
                "A value is not valid UTF-8.",
                hint="In a database of encoding SQL_ASCII nobody can tell what its bytes mean.",
                relation=str(relation),
                lsn=lsn,
            ) from None
        if read is None:
            return None
        old_kind, old, new = read
        if old is not None and old_kind == KEY:
            pairs = zip(old, relation.attributes, strict=True)
            old = [value if attribute.is_key else NOT_PUBLISHED for value, attribute in pairs]
        return ReorderBufferChange(_ACTIONS[payload[0]], lsn, xid, old, new)
