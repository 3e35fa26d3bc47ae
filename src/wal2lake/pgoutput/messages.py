"""Every message of the pgoutput plugin, declared once: the annotations are the wire format, in the wire's order.

Names are those of the documentation. ``commit_ts`` and its kin are µs since 2000-01-01 00:00 UTC. Messages with
``in_stream_xid`` carry an Int32 xid after the tag while a streamed transaction is open; PgoutputSession takes it off.

Source: PostgreSQL documentation, "Logical Replication Message Formats"; src/backend/replication/logical/proto.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from wal2lake.pgoutput.tuples import NewTuple, Old, OldOrNone
from wal2lake.wire.fields import (
    LENGTH,
    Array,
    Byten,
    Choice,
    Flag,
    Int8,
    Int16,
    Int32,
    Integer,
    Layout,
    Oid,
    Optional,
    Reader,
    String,
    TimestampTz,
    TransactionId,
    ValidTransactionId,
    ValidXLogRecPtr,
    XLogRecPtr,
    read_items,
    wire_type,
)

COLUMN_IS_KEY: Final = 1
TRUNCATE_CASCADE: Final = 1
TRUNCATE_RESTART_IDENTITY: Final = 2


class PgoutputMessage:
    """What every message has: its ``tag`` byte, the protocol version it came with, and whether a stream prefixes it."""

    __slots__ = ()
    tag: ClassVar[bytes]
    since: ClassVar[int] = 1
    in_stream_xid: ClassVar[bool] = False


NoFlags = Annotated[int, Integer("Int8", "B", high=0)]  # none is defined yet; proto.c refuses any that is set


@dataclass(frozen=True, slots=True)
class Begin(PgoutputMessage):
    """A transaction begins; ``final_lsn`` is the LSN of its commit record."""

    tag: ClassVar[bytes] = b"B"
    final_lsn: ValidXLogRecPtr
    commit_ts: TimestampTz
    xid: TransactionId


@dataclass(frozen=True, slots=True)
class Message(PgoutputMessage):
    """A logical decoding message (pg_logical_emit_message); not ``transactional``: outside of any transaction."""

    tag: ClassVar[bytes] = b"M"
    in_stream_xid: ClassVar[bool] = True
    transactional: Flag
    lsn: XLogRecPtr
    prefix: String
    content: Byten


@dataclass(frozen=True, slots=True)
class Commit(PgoutputMessage):
    """The transaction is whole; ``end_lsn``, not ``commit_lsn``, is the position to acknowledge."""

    tag: ClassVar[bytes] = b"C"
    flags: NoFlags
    commit_lsn: XLogRecPtr
    end_lsn: XLogRecPtr
    commit_ts: TimestampTz


@dataclass(frozen=True, slots=True)
class Origin(PgoutputMessage):
    """The transaction was replicated from elsewhere: the origin's name and its commit LSN there."""

    tag: ClassVar[bytes] = b"O"
    origin_lsn: XLogRecPtr
    name: String


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A published column; ``flags`` 1: part of the replica identity; ``typmod`` -1: none."""

    flags: Int8
    name: String
    type_oid: Oid
    typmod: Int32


@dataclass(frozen=True, slots=True)
class Relation(PgoutputMessage):
    """The shape of a table; sent before its first change and again after anything about it may have changed.

    ``namespace`` is empty for pg_catalog. ``replica_identity`` is pg_class.relreplident: 'd' default, 'n' nothing,
    'f' full, 'i' index.
    """

    tag: ClassVar[bytes] = b"R"
    in_stream_xid: ClassVar[bool] = True
    relation_id: Oid
    namespace: String
    name: String
    replica_identity: Annotated[str, Choice("dnfi")]
    columns: Annotated[tuple[RelationColumn, ...], Array(wire_type(Int16), Layout(RelationColumn))]


@dataclass(frozen=True, slots=True)
class Type(PgoutputMessage):
    """A type that is not built in, announced before the Relation that uses it."""

    tag: ClassVar[bytes] = b"Y"
    in_stream_xid: ClassVar[bool] = True
    type_oid: Oid
    namespace: String
    name: String


@dataclass(frozen=True, slots=True)
class Insert(PgoutputMessage):
    """A new row."""

    tag: ClassVar[bytes] = b"I"
    in_stream_xid: ClassVar[bool] = True
    relation_id: Oid
    new: NewTuple


@dataclass(frozen=True, slots=True)
class Update(PgoutputMessage):
    """A changed row; ``old`` is there when the key changed ('K') or the replica identity is FULL ('O')."""

    tag: ClassVar[bytes] = b"U"
    in_stream_xid: ClassVar[bool] = True
    relation_id: Oid
    old: OldOrNone
    new: NewTuple


@dataclass(frozen=True, slots=True)
class Delete(PgoutputMessage):
    """A row is gone; ``old`` is its key ('K') or, with replica identity FULL, the whole row ('O')."""

    tag: ClassVar[bytes] = b"D"
    in_stream_xid: ClassVar[bool] = True
    relation_id: Oid
    old: Old


@dataclass(frozen=True, slots=True)
class Truncate(PgoutputMessage):
    """Several tables emptied at once; ``options`` 1: CASCADE, 2: RESTART IDENTITY."""

    tag: ClassVar[bytes] = b"T"
    in_stream_xid: ClassVar[bool] = True
    relation_ids: Annotated[tuple[int, ...], Array(LENGTH, wire_type(Oid))]
    options: Int8


@dataclass(frozen=True, slots=True)
class StreamStart(PgoutputMessage):
    """A chunk of a transaction still in progress begins; ``first_segment``: it is this transaction's first."""

    tag: ClassVar[bytes] = b"S"
    since: ClassVar[int] = 2
    xid: ValidTransactionId
    first_segment: Flag


@dataclass(frozen=True, slots=True)
class StreamStop(PgoutputMessage):
    """The chunk ends; the transaction does not."""

    tag: ClassVar[bytes] = b"E"
    since: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class StreamCommit(PgoutputMessage):
    """The streamed transaction is whole; the fields are Commit's."""

    tag: ClassVar[bytes] = b"c"
    since: ClassVar[int] = 2
    xid: ValidTransactionId
    flags: NoFlags
    commit_lsn: XLogRecPtr
    end_lsn: XLogRecPtr
    commit_ts: TimestampTz


@dataclass(frozen=True, slots=True)
class AbortInfo:
    """Where and when a streamed (sub)transaction aborted."""

    abort_lsn: XLogRecPtr
    abort_ts: TimestampTz


@dataclass(frozen=True, slots=True)
class StreamAbort(PgoutputMessage):
    """Forget the changes of ``subxid``, which is ``xid`` when the whole transaction aborts.

    ``abort`` is there exactly when streaming is 'parallel' (protocol version 4).
    """

    tag: ClassVar[bytes] = b"A"
    since: ClassVar[int] = 2
    xid: ValidTransactionId
    subxid: ValidTransactionId
    abort: Annotated[AbortInfo | None, Optional(Layout(AbortInfo))] = None


@dataclass(frozen=True, slots=True)
class BeginPrepare(PgoutputMessage):
    """A prepared transaction begins; ``prepare_lsn`` is the LSN of its prepare record."""

    tag: ClassVar[bytes] = b"b"
    since: ClassVar[int] = 3
    prepare_lsn: ValidXLogRecPtr
    end_lsn: ValidXLogRecPtr
    prepare_ts: TimestampTz
    xid: TransactionId
    gid: String


@dataclass(frozen=True, slots=True)
class Prepare(PgoutputMessage):
    """PREPARE TRANSACTION: whole, but neither committed nor rolled back."""

    tag: ClassVar[bytes] = b"P"
    since: ClassVar[int] = 3
    flags: NoFlags
    prepare_lsn: ValidXLogRecPtr
    end_lsn: ValidXLogRecPtr
    prepare_ts: TimestampTz
    xid: ValidTransactionId
    gid: String


@dataclass(frozen=True, slots=True)
class CommitPrepared(PgoutputMessage):
    """COMMIT PREPARED of a transaction sent before."""

    tag: ClassVar[bytes] = b"K"
    since: ClassVar[int] = 3
    flags: NoFlags
    commit_lsn: ValidXLogRecPtr
    end_lsn: ValidXLogRecPtr
    commit_ts: TimestampTz
    xid: TransactionId
    gid: String


@dataclass(frozen=True, slots=True)
class RollbackPrepared(PgoutputMessage):
    """ROLLBACK PREPARED of a transaction sent before; ``prepare_end_lsn`` tells whether it ever was."""

    tag: ClassVar[bytes] = b"r"
    since: ClassVar[int] = 3
    flags: NoFlags
    prepare_end_lsn: ValidXLogRecPtr
    rollback_end_lsn: ValidXLogRecPtr
    prepare_ts: TimestampTz
    rollback_ts: TimestampTz
    xid: TransactionId
    gid: String


@dataclass(frozen=True, slots=True)
class StreamPrepare(PgoutputMessage):
    """PREPARE TRANSACTION of a streamed transaction; the fields are Prepare's."""

    tag: ClassVar[bytes] = b"p"
    since: ClassVar[int] = 3
    flags: NoFlags
    prepare_lsn: ValidXLogRecPtr
    end_lsn: ValidXLogRecPtr
    prepare_ts: TimestampTz
    xid: ValidTransactionId
    gid: String


class TruncateLayout(Layout[Truncate]):
    """The one message whose count and items do not stand together: the options lie between them."""

    def __init__(self) -> None:
        super().__init__(Truncate)
        self._options = wire_type(Int8)
        self._relation_id = wire_type(Oid)

    def read(self, reader: Reader) -> Truncate:
        reader.place = "Truncate.relation_ids"
        count = LENGTH.read(reader)
        reader.place = "Truncate.options"
        options = self._options.read(reader)
        reader.place = "Truncate.relation_ids"
        return Truncate(read_items(reader, count, self._relation_id), options)

    def write(self, out: bytearray, value: Truncate) -> None:
        LENGTH.write(out, len(value.relation_ids))
        self._options.write(out, value.options)
        for relation_id in value.relation_ids:
            self._relation_id.write(out, relation_id)


_CLASSES: Final[tuple[type[PgoutputMessage], ...]] = (
    Begin, Message, Commit, Origin, Relation, Type, Insert, Update, Delete, Truncate,
    StreamStart, StreamStop, StreamCommit, StreamAbort,
    BeginPrepare, Prepare, CommitPrepared, RollbackPrepared, StreamPrepare,
)  # fmt: skip
LAYOUTS: Final[dict[bytes, Layout[Any]]] = {
    cls.tag: TruncateLayout() if cls is Truncate else Layout(cls) for cls in _CLASSES
}
