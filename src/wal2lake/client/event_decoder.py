"""One connection's messages to events, one pass over many messages that are already here.

Inserts, updates, deletes, Begin and Commit are read where they lie; all else, and whatever looks wrong, goes through
PgoutputSession, which says what is wrong and where. Between two connections the decoder remembers what was handed out
of a transaction that was cut: the server sends that transaction again from its Begin, the same changes in the same
order (each has its LSN), so as many as were handed out are passed over, and the rest goes on as if nothing had been.

Source: PostgreSQL documentation, "Logical Replication Message Formats"; reorderbuffer.c (ReorderBufferIterTXNNext:
a transaction's changes come in the order of their LSNs, its subtransactions' among them).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from psycopg.adapt import AdaptersMap

from wal2lake.client.events import Begin, Change, Commit, Delete, Event, Insert, Message, Origin, Truncate, Update
from wal2lake.client.row_loader import RowLoader, describe, lsn_of
from wal2lake.errors import ProtocolError
from wal2lake.lsn import LSN
from wal2lake.pgoutput import messages as pg
from wal2lake.pgoutput.columns import Columns, read_columns
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, State

_HEAD: Final = struct.Struct(">xQ16xBI").unpack_from  # XLogData's start LSN; tag, and for a change its relation
_HEAD_SIZE: Final = 31  # with the byte that begins a change's first tuple
_BEGIN: Final = struct.Struct(">26xQqI")
_COMMIT: Final = struct.Struct(">26xBQQq")
_MESSAGE: Final = 25
_INSERT, _UPDATE, _DELETE, _BEGIN_TAG, _COMMIT_TAG = b"IUDBC"
_NEW, _KEY, _OLD = b"NKO"
_CHANGES: Final = b"IUD"


class EventDecoder:
    """``delivered_lsn``: up to where everything was handed out, transactions as a whole; a new connection begins there.
    ``failure``: what ended the decoding for good."""

    def __init__(self, options: PgoutputOptions, adapters: AdaptersMap, start_lsn: LSN) -> None:
        self.delivered_lsn = start_lsn
        self.failure: Exception | None = None
        self._options = options
        self._adapters = adapters
        self._message_lsn = LSN(0)  # of the last message outside of any transaction
        self._commit_lsn = LSN(0)  # the end of the last transaction
        self._xid = 0
        self._changes, self._change_lsn = 0, 0  # handed out of the open transaction; the last one's LSN
        self._skip: int | None = None  # of a transaction that was cut: how many changes still come again
        self._expected = 0
        self.begin_connection()

    @property
    def in_transaction(self) -> bool:
        """Between a Begin and its Commit."""
        return self._xid != 0

    @property
    def pending_lsn(self) -> LSN:
        """What has to be acknowledged before more may be."""
        return max(self._commit_lsn, self._message_lsn)

    def begin_connection(self) -> None:
        """The server announces everything anew."""
        self._session = PgoutputSession(self._options)
        self._readers: dict[int, RowLoader] = {}
        if self.in_transaction:
            self._expected, self._skip = self._xid, self._changes

    def note_keepalive(self, wal_end: LSN) -> None:
        """All that was decoded below ``wal_end`` has been handed out."""
        self.delivered_lsn = max(self.delivered_lsn, wal_end)

    def decode(self, payloads: Iterable[bytes]) -> Iterator[Event]:
        """The events of XLogData payloads. Raises ProtocolError, UnrepresentableError, and what a user's own loader
        raises; then the stream has ended for good, for what follows would not be whole."""
        try:
            if self._skip is not None:
                yield from self._decode(self._unseen(payloads))
            else:
                yield from self._decode(payloads)
        except GeneratorExit:
            raise
        except Exception as error:
            self.failure = error
            raise

    def _decode(self, payloads: Iterable[bytes]) -> Iterator[Event]:
        head, readers, session = _HEAD, self._readers, self._session
        for payload in payloads:
            start_lsn, tag, relation_id = head(payload) if len(payload) >= _HEAD_SIZE else (0, 0, 0)
            event: Event | None = None
            if self._xid and tag in _CHANGES and (reader := readers.get(relation_id)) is not None:
                event = _change(payload, tag, reader, start_lsn)
            if event is not None:
                self._changes += 1
                self._change_lsn = start_lsn
                yield event
            elif tag == _COMMIT_TAG and len(payload) == _COMMIT.size and self._xid and not payload[26]:
                _, commit_lsn, end_lsn, commit_ts = _COMMIT.unpack(payload)
                xid, self._xid = self._xid, 0
                session.state, session.xid = State.IDLE, None
                self.delivered_lsn = self._commit_lsn = lsn_of(end_lsn)
                yield Commit(xid, lsn_of(commit_lsn), self._commit_lsn, commit_ts)
            elif tag == _BEGIN_TAG and not self._xid and (begin := _begin(payload)) is not None:
                self._xid, self._changes, self._change_lsn = begin.xid, 0, 0
                session.state, session.xid = State.TRANSACTION, begin.xid
                yield begin
            else:
                yield from self._decode_seldom(payload)

    def _decode_seldom(self, payload: bytes) -> Iterator[Event]:
        """What comes seldom, or is wrong."""
        start_lsn = int.from_bytes(payload[1:9], "big")
        message, _, of_nothing = self._session.receive(payload[_MESSAGE:], start_lsn)
        lsn = LSN(start_lsn)
        match message:
            case pg.Relation():
                relation = describe(message, self._session.types)
                self._readers[message.relation_id] = RowLoader(relation, self._adapters)
            case pg.Truncate():
                self._count(start_lsn)
                relations = tuple(self._readers[i].relation for i in message.relation_ids)
                cascade = bool(message.options & pg.TRUNCATE_CASCADE)
                yield Truncate(lsn, relations, cascade, bool(message.options & pg.TRUNCATE_RESTART_IDENTITY))
            case pg.Message():
                if message.transactional:
                    self._count(start_lsn)
                elif message.lsn <= self._message_lsn:
                    return  # it came before the connection was lost
                else:
                    self._message_lsn = LSN(message.lsn)  # where its record ends
                    self.delivered_lsn = max(self.delivered_lsn, self._message_lsn)
                yield Message(LSN(message.lsn), message.transactional, message.prefix, message.content)
            case pg.Origin():
                yield Origin(message.name, LSN(message.origin_lsn))
            case pg.Type():
                pass
            case pg.StreamAbort() if of_nothing:  # 18 sends it unasked
                pass
            case _:
                raise ProtocolError(f"{type(message).__name__} cannot come here as it is.", lsn=start_lsn)

    def _count(self, start_lsn: int) -> None:
        self._changes += 1
        self._change_lsn = start_lsn

    def _unseen(self, payloads: Iterable[bytes]) -> Iterator[bytes]:
        """Without what was handed out of the transaction that was cut."""
        for payload in payloads:
            tag = payload[_MESSAGE : _MESSAGE + 1]
            if self._skip is None or tag in b"RY" or (tag == b"M" and self._session.state is State.IDLE):
                yield payload
                continue
            start_lsn = int.from_bytes(payload[1:9], "big")
            message, _, of_nothing = self._session.receive(payload[_MESSAGE:], start_lsn)
            if not of_nothing:
                self._skip_one(message, start_lsn)

    def _skip_one(self, message: pg.PgoutputMessage, start_lsn: int) -> None:
        match message:
            case pg.Begin() if message.xid == self._expected:
                same = True
            case pg.Origin():
                same = True
            case pg.Insert() | pg.Update() | pg.Delete() | pg.Truncate() | pg.Message() if self._skip:
                self._skip -= 1
                same = self._skip > 0 or start_lsn == self._change_lsn
            case _:
                same = False
        if not same:
            raise ProtocolError(
                f"Transaction {self._expected} was being read when the connection was lost, and did not come again"
                " as it was.",
                hint="Read again from the position that was acknowledged last.",
                lsn=start_lsn,
            )
        if self._skip == 0:
            self._skip = None


def _begin(payload: bytes) -> Begin | None:
    """The Begin, or None where the bytes are not what they should be: neither its LSN nor its xid is ever 0."""
    if len(payload) != _BEGIN.size:
        return None
    commit_lsn, commit_ts, xid = _BEGIN.unpack(payload)
    return Begin(xid, lsn_of(commit_lsn), commit_ts) if commit_lsn and xid else None


def _change(payload: bytes, tag: int, reader: RowLoader, lsn: int) -> Change | None:
    """The change, or None where the bytes are not what they should be."""
    kind = payload[_MESSAGE + 5]
    if tag == _INSERT:
        columns = _columns(payload, 31, reader) if kind == _NEW else None
        return None if columns is None else Insert(lsn_of(lsn), reader.relation, None, reader.row(columns, lsn))
    before, at = None, 30
    if kind in (_KEY, _OLD):
        before = _columns(payload, 31, reader, last=tag == _DELETE)
        if before is None:
            return None
        at = before.end
    after = None
    if tag == _UPDATE:
        after = _columns(payload, at + 1, reader) if payload[at : at + 1] == b"N" else None
        if after is None:
            return None
    old = None if before is None else reader.row(before, lsn) if kind == _OLD else reader.key(before, lsn)
    if after is not None:
        whole = old if kind == _OLD else None
        return Update(lsn_of(lsn), reader.relation, old, reader.row(after, lsn, whole))
    return None if old is None else Delete(lsn_of(lsn), reader.relation, old, None)


def _columns(payload: bytes, at: int, reader: RowLoader, *, last: bool = True) -> Columns | None:
    """The columns at ``at``, as many as the relation has; ``last``: nothing may follow them."""
    try:
        columns = read_columns(payload, at)
    except (IndexError, ValueError, struct.error):
        return None
    fits = columns.end == len(payload) if last else columns.end < len(payload)
    return columns if fits and len(columns.values) == reader.count else None
