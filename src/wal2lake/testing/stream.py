"""A replication stream made up message by message: what a walsender would send, without a server.

LSNs only grow. The payloads are whole XLogData CopyData payloads (``capture.frames`` makes of them what a log takes).
"""

from __future__ import annotations

from wal2lake.lsn import LSN
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    PgoutputMessage,
    Prepare,
    Relation,
    RelationColumn,
    RollbackPrepared,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Update,
)
from wal2lake.pgoutput.tuples import NULL, OldTuple, TupleColumn, TupleData
from wal2lake.wire.replication import XLOG_DATA_HEADER, XLogData, write_xlog_data

INT8, TEXT = 20, 25


class ScriptedStream:
    """``lsn`` is where the WAL stands; every message moves it by ``step`` bytes."""

    def __init__(self, lsn: int = 0x1000, step: int = 8) -> None:
        self.lsn = LSN(lsn)
        self.step = step
        self.xid = 700

    def message(self, message: PgoutputMessage) -> bytes:
        payload = write_xlog_data(XLogData(self.lsn, self.lsn, 0, write_message(message)))
        self.lsn = LSN(self.lsn + self.step)
        return payload

    def in_chunk(self, message: PgoutputMessage, xid: int) -> bytes:
        """A message inside a chunk of a streamed transaction, of the (sub)transaction ``xid``."""
        whole = self.message(message)
        head, body = whole[: XLOG_DATA_HEADER + 1], whole[XLOG_DATA_HEADER + 1 :]
        return head + xid.to_bytes(4, "big") + body if message.in_stream_xid else whole

    def chunk(self, xid: int, *changes: tuple[int, PgoutputMessage] | PgoutputMessage, first: bool) -> list[bytes]:
        """Stream Start, the changes, each with its subtransaction if it is of one, Stream Stop."""
        pairs = [change if isinstance(change, tuple) else (xid, change) for change in changes]
        start = self.message(StreamStart(xid, first))
        return [start, *(self.in_chunk(message, sub) for sub, message in pairs), self.message(StreamStop())]

    def stream_commit(self, xid: int, commit_ts: int = 0) -> bytes:
        """Stream Commit; afterwards ``lsn`` is its end_lsn."""
        return self.message(StreamCommit(xid, 0, self.lsn, LSN(self.lsn + self.step), commit_ts))

    def prepare(self, xid: int, *changes: PgoutputMessage) -> list[bytes]:
        """Begin Prepare, the changes, Prepare; afterwards ``lsn`` is the Prepare's end_lsn."""
        at = LSN(self.lsn + self.step * (len(changes) + 1))
        end = LSN(at + self.step)
        began = self.message(BeginPrepare(at, end, 0, xid, f"g{xid}"))
        return [began, *map(self.message, changes), self.message(Prepare(0, at, end, 0, xid, f"g{xid}"))]

    def stream_prepare(self, xid: int) -> bytes:
        """Stream Prepare; afterwards ``lsn`` is its end_lsn."""
        return self.message(StreamPrepare(0, self.lsn, LSN(self.lsn + self.step), 0, xid, f"g{xid}"))

    def commit_prepared(self, xid: int, commit_ts: int = 0) -> bytes:
        """Commit Prepared; afterwards ``lsn`` is its end_lsn."""
        return self.message(CommitPrepared(0, self.lsn, LSN(self.lsn + self.step), commit_ts, xid, f"g{xid}"))

    def rollback_prepared(self, xid: int) -> bytes:
        """Rollback Prepared; afterwards ``lsn`` is its rollback_end_lsn."""
        return self.message(RollbackPrepared(0, self.lsn, LSN(self.lsn + self.step), 0, 0, xid, f"g{xid}"))

    def transaction(self, *changes: PgoutputMessage, commit_ts: int = 0) -> list[bytes]:
        """Begin, the changes, Commit; afterwards ``lsn`` is the Commit's end_lsn."""
        self.xid += 1
        final = LSN(self.lsn + self.step * (len(changes) + 1))
        payloads = [self.message(Begin(final, commit_ts, self.xid)), *map(self.message, changes)]
        return [*payloads, self.message(Commit(0, final, LSN(final + self.step), commit_ts))]


def relation(
    oid: int = 16384, name: str = "t", columns: tuple[str, ...] = ("id", "v"), identity: str = "d"
) -> Relation:
    """public.``name`` with an int8 key column and text columns."""
    described = tuple(RelationColumn(int(i == 0), c, INT8 if i == 0 else TEXT, -1) for i, c in enumerate(columns))
    return Relation(oid, "public", name, identity, described)


def row(*values: object) -> TupleData:
    """Text values; None is NULL; a TupleColumn goes as it is."""
    return TupleData(tuple(_value(v) for v in values))


def insert(*values: object, oid: int = 16384) -> Insert:
    return Insert(oid, row(*values))


def update(*values: object, oid: int = 16384, old: OldTuple | None = None) -> Update:
    return Update(oid, old, row(*values))


def delete(*key: object, oid: int = 16384, kind: str = "K") -> Delete:
    return Delete(oid, OldTuple(kind, row(*key).columns))


def _value(value: object) -> TupleColumn:
    if isinstance(value, TupleColumn):
        return value
    return NULL if value is None else TupleColumn("t", str(value).encode())
