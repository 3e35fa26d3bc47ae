"""Messages side by side, and the fixed fields at their beginnings gathered for all at once.

Beside pgoutput/ only this module knows what stands where in a message, up to the tuples (tuples.py). No message is
looked at one by one but Relation, Type and Truncate, which are few.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.columnar.arrays import Numbers, gather, to_arrow
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import PgoutputMessage

Rows = npt.NDArray[np.int64]

BEGIN, COMMIT, ORIGIN, RELATION, TYPE, MESSAGE = b"BCORYM"
STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT = b"SEcA"
BEGIN_PREPARE, PREPARE, STREAM_PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED = b"bPpKr"
INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
IN_STREAM_XID: Final = (RELATION, TYPE, INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE)  # tag, then an xid, in a chunk
XID_BYTES: Final = 4
KEY, OLD, NEW = b"KON"
TUPLE_AT: Final = 6  # tag, relation id, 'N' or 'K' or 'O'; then TupleData
TRUNCATE_IDS_AT: Final = 6  # tag, number of relations, options; then their ids
_ID_AT: Final = 1
_SUBJECT_BYTES: Final = 5  # tag and OID
_SHORTEST = {"B": 21, "C": 26, "O": 10, "R": 10, "Y": 7, "I": 8, "U": 8, "D": 8, "T": 10, "M": 15, "A": 9,
             "S": 6, "E": 1, "c": 30, "b": 30, "P": 31, "p": 31, "K": 31, "r": 39}  # fmt: skip
_MIN_LENGTH = np.full(256, np.iinfo(np.int64).max, np.int64)  # an unknown type is never long enough
for _tag, _length in _SHORTEST.items():
    _MIN_LENGTH[ord(_tag)] = _length


class MessageColumns:
    """N pgoutput messages: ``lsn`` (uint64, XLogData's start), ``payload`` (Arrow binary, its type byte first).

    ``subxid`` (uint32): of a message in a streamed chunk the (sub)transaction that it says it is of, which is not in
    ``payload``; else 0. ``tag`` has the type bytes, ``lengths`` the sizes in bytes. Raises ProtocolError, with the LSN,
    for a message of a type that pgoutput does not send at protocol version 3, and for one that is too short for its
    type.
    """

    def __init__(
        self, lsn: npt.NDArray[np.uint64], payload: pa.Array, subxid: npt.NDArray[np.uint32] | None = None
    ) -> None:
        self.lsn, self.payload = lsn, payload
        self.subxid = np.zeros(len(lsn), np.uint32) if subxid is None else subxid
        _, offsets, data = payload.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(payload) + 1, 4 * payload.offset) if len(payload) else np.zeros(1)
        self._at: Rows = bounds[:-1].astype(np.int64)
        self._data = data or pa.py_buffer(b"")
        self.lengths: Rows = np.diff(bounds).astype(np.int64)
        self._refuse(self.lengths < 1)
        self.tag: npt.NDArray[np.uint8] = gather(self._data, "u1", self._at)
        self._refuse(self.lengths < _MIN_LENGTH[self.tag])

    @classmethod
    def of(cls, messages: Iterable[tuple[int, bytes]]) -> Self:
        """A few, each an LSN and the message."""
        pairs = list(messages)
        lsn = np.array([int(lsn) for lsn, _ in pairs], np.uint64)
        return cls(lsn, pa.array([payload for _, payload in pairs], pa.binary()))

    def __len__(self) -> int:
        return len(self.payload)

    def rows_of(self, *tags: int) -> Rows:
        return np.flatnonzero(np.isin(self.tag, tags))

    def where(self, mask: npt.NDArray[np.bool_]) -> MessageColumns:
        """Those of ``mask``."""
        return MessageColumns(self.lsn[mask], self.payload.take(to_arrow(np.flatnonzero(mask))), self.subxid[mask])

    def message(self, row: int) -> PgoutputMessage:
        return read_message(self.payload_of(row))

    def payload_of(self, row: int) -> bytes:
        payload: bytes = self.payload[row].as_py()
        return payload

    def ids(self, rows: Rows) -> Numbers:
        """The OIDs of Relation, Type, Insert, Update and Delete messages."""
        return gather(self._data, ">u4", self._at[rows] + _ID_AT)

    def streams(self, rows: Rows) -> Numbers:
        """The xids of Stream Start and Stream Commit messages."""
        return gather(self._data, ">u4", self._at[rows] + 1)

    def prepares(self, rows: Rows) -> Numbers:
        """The xids of Begin Prepare messages."""
        return gather(self._data, ">u4", self._at[rows] + 25)

    def prepared(self, rows: Rows) -> Numbers:
        """The xids of Commit Prepared messages."""
        return gather(self._data, ">u4", self._at[rows] + 26)

    def begins(self, rows: Rows) -> dict[str, Numbers]:
        """``xid``, ``final_lsn`` and ``commit_ts`` (µs since 2000-01-01 UTC) of Begin messages."""
        at = self._at[rows]
        kinds = (("xid", ">u4", 17), ("final_lsn", ">u8", 1), ("commit_ts", ">i8", 9))
        return {name: gather(self._data, kind, at + offset) for name, kind, offset in kinds}

    def end_lsns(self, rows: Rows) -> Numbers:
        """Where the transactions of these Commit messages end."""
        return gather(self._data, ">u8", self._at[rows] + 10)

    def _refuse(self, bad: npt.NDArray[np.bool_]) -> None:
        if not bad.any():
            return
        row = int(bad.argmax())
        what = f"type {chr(self.payload_of(row)[0])!r}" if self.lengths[row] else "no type"
        raise ProtocolError(
            f"The server sent a message of {what} and {self.lengths[row]} bytes,"
            " which the change log does not understand.",
            offset=0,
            lsn=int(self.lsn[row]),
        )


def identifier(payload: bytes) -> int:
    """The OID of a Relation or Type message."""
    return int.from_bytes(payload[_ID_AT:_SUBJECT_BYTES], "big")


def subject(payload: bytes) -> bytes:
    """What a Relation or Type message is about: another with the same replaces it."""
    return payload[:_SUBJECT_BYTES]


def truncated_relations(payload: bytes) -> list[int]:
    """The relation OIDs of a Truncate message."""
    count = int.from_bytes(payload[1:5], "big")
    if len(payload) != TRUNCATE_IDS_AT + 4 * count:
        raise ProtocolError("A Truncate message is not as long as its number of relations says.", offset=1)
    oids: list[int] = np.frombuffer(payload, ">u4", count, TRUNCATE_IDS_AT).tolist()
    return oids
