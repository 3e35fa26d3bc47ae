"""One replication connection's memory: the relation and type cache, the open transaction, and the in-stream xid.

Inside a streamed chunk every change carries an Int32 xid after its tag; it is taken off here and nowhere else. What
may follow what is one table, and holds for both ends: ``receive`` for the subscriber, ``send`` for the walsender.
A new connection is a new session: the server announces every relation again. A Relation inside a chunk that
later aborts still counts, because the server does not send it again.

Origin stands before its transaction's changes, as apply_handle_origin in worker.c demands. What the options exclude
cannot come: Message without ``messages``, and streamed chunks without ``streaming``. Prepared transactions can: a slot
that was made for them sends them whether or not ``two_phase`` is asked for (CreateDecodingContext in logical.c).

A StreamAbort may name a transaction of which nothing was sent, at every protocol version and whether or not streaming
was asked for: PostgreSQL 18 sends one for each subtransaction of a transaction that outgrew logical_decoding_work_mem
and was found aborted before it was sent (ReorderBufferCheckAndTruncateAbortedTXN in reorderbuffer.c). The session knows
which transactions have begun to be streamed, and marks the others' aborts as such.

Source: PostgreSQL documentation, "Logical Streaming Replication"; src/backend/replication/logical/worker.c.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from wal2lake.errors import ProtocolError
from wal2lake.names import qualified
from wal2lake.pgoutput.codec import read_body, read_tag
from wal2lake.pgoutput.messages import (
    LAYOUTS,
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Prepare,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.wire.fields import Reader, ValidTransactionId, wire_type


class State(Enum):
    """Where in the stream a session stands."""

    IDLE = auto()
    TRANSACTION = auto()  # after Begin
    PREPARING = auto()  # after Begin Prepare
    CHUNK = auto()  # after Stream Start


_CHANGES: Final = (Relation, Type, Insert, Update, Delete, Truncate, Message)
_WHOLE: Final = (StreamCommit, StreamAbort, StreamPrepare, CommitPrepared, RollbackPrepared)
TRANSITIONS: Final[dict[State, dict[type[PgoutputMessage], State]]] = {
    State.IDLE: {
        Begin: State.TRANSACTION,
        BeginPrepare: State.PREPARING,
        StreamStart: State.CHUNK,
        **dict.fromkeys((*_WHOLE, Message), State.IDLE),
    },
    State.TRANSACTION: {Commit: State.IDLE, **dict.fromkeys((Origin, *_CHANGES), State.TRANSACTION)},
    State.PREPARING: {Prepare: State.IDLE, **dict.fromkeys((Origin, *_CHANGES), State.PREPARING)},
    State.CHUNK: {StreamStop: State.IDLE, **dict.fromkeys((Origin, *_CHANGES), State.CHUNK)},
}
_STREAMED: Final = (StreamStart, StreamStop, StreamCommit, StreamPrepare)
_WRITES: Final = (Insert, Update, Delete, Truncate, Message)
_XID = wire_type(ValidTransactionId)


class Received(NamedTuple):
    """A message and the transaction it belongs to (in a chunk, the subtransaction); None outside of any.

    ``of_nothing``: a StreamAbort of a transaction of which nothing was sent; pass over it.
    """

    message: PgoutputMessage
    xid: int | None
    of_nothing: bool = False


class PgoutputSession:
    """The state of one stream; ``options`` are those the stream was started with."""

    def __init__(self, options: PgoutputOptions) -> None:
        self.options = options
        self.state = State.IDLE
        self.xid: int | None = None
        self.relations: dict[int, Relation] = {}
        self.types: dict[int, Type] = {}
        self._streamed: set[int] = set()  # transactions with a Stream Start and no end yet
        self._written = False  # something that Origin may not follow came since the last Begin or Stream Start

    def receive(self, payload: bytes | memoryview, lsn: int | None = None) -> Received:
        """Read the next message; raise ProtocolError, with ``lsn`` in it, for what may not come here."""
        try:
            reader = Reader(payload)
            layout = read_tag(reader)
            xid = self.xid
            if self.state is State.CHUNK and layout.cls.in_stream_xid:
                reader.place = f"{layout.name}.xid"
                xid = _XID.read(reader)
            message = read_body(reader, layout)
            of_nothing = isinstance(message, StreamAbort) and message.xid not in self._streamed
            self._advance(message)
        except ProtocolError as error:
            error.lsn = lsn
            raise
        # its own field's, else its prefix's or the open transaction's
        xid = message.subxid if isinstance(message, StreamAbort) else getattr(message, "xid", xid)
        return Received(message, xid, of_nothing)

    def announce(self, message: Relation | Type) -> None:
        """Know what was announced before the stream that is read here begins: in an earlier part of a change log."""
        self._check(message)

    def send(self, message: PgoutputMessage, xid: int | None = None) -> bytes:
        """Write the next message; ``xid`` is the (sub)transaction inside a chunk, by default the chunk's own."""
        out = bytearray(message.tag)
        if self.state is State.CHUNK and message.in_stream_xid:
            _XID.write(out, self.xid if xid is None else xid)
        LAYOUTS[message.tag].write(out, message)
        self._advance(message)
        return bytes(out)

    def _advance(self, message: PgoutputMessage) -> None:
        kind = type(message)
        if kind.since > self.options.proto_version and kind is not StreamAbort:
            asked = self.options.proto_version
            raise ProtocolError(f"{kind.__name__} came with version {kind.since}; {asked} was asked for.", offset=0)
        if kind not in TRANSITIONS[self.state] or (kind is Origin and self._written):
            behind = " behind a change" if kind is Origin and self._written else ""
            raise ProtocolError(f"{kind.__name__} cannot come in state {self.state.name}{behind}.", offset=0)
        if (kind is Message and not self.options.messages) or (kind in _STREAMED and self.options.streaming == "off"):
            raise ProtocolError(f"{kind.__name__} came, which was not asked for.", offset=0)
        self._check(message)
        self.state = TRANSITIONS[self.state][kind]
        if isinstance(message, Begin | BeginPrepare | StreamStart):
            self.xid = message.xid
            self._written = False
        elif kind in _WRITES:
            self._written = True
        elif self.state is State.IDLE:
            self.xid = None
        self._note_streamed(message)

    def _note_streamed(self, message: PgoutputMessage) -> None:
        match message:
            case StreamStart(xid=xid):
                self._streamed.add(xid)
            case StreamCommit(xid=xid) | StreamPrepare(xid=xid):
                self._streamed.discard(xid)
            case StreamAbort(xid=xid, subxid=subxid) if subxid == xid:
                self._streamed.discard(xid)

    def _check(self, message: PgoutputMessage) -> None:
        """What the message says must fit what was said before; Relation and Type are remembered."""
        match message:
            case Relation():
                self.relations[message.relation_id] = message
            case Type():
                self.types[message.type_oid] = message
            case Insert() | Delete() | Update():
                self._check_tuples(message)
            case Truncate():
                for relation_id in message.relation_ids:
                    self._relation(relation_id)
            case StreamAbort() if (message.abort is not None) != (self.options.streaming == "parallel"):
                raise ProtocolError("StreamAbort has its LSN and time exactly when streaming is parallel.", offset=9)

    def _check_tuples(self, message: Insert | Update | Delete) -> None:
        relation = self._relation(message.relation_id)
        for part in (getattr(message, "old", None), getattr(message, "new", None)):
            if part is not None and len(part.columns) != len(relation.columns):
                raise ProtocolError(
                    f"A row has {len(part.columns)} columns where its Relation announced {len(relation.columns)}.",
                    relation=qualified(relation.namespace, relation.name),
                    offset=0,
                )

    def _relation(self, relation_id: int) -> Relation:
        if relation_id not in self.relations:
            raise ProtocolError(f"A change names relation {relation_id}, which no Relation announced.", offset=0)
        return self.relations[relation_id]
