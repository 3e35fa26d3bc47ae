"""Messages become a segment by gathering fields out of one joined buffer; no message is looked at one by one.

The exceptions are Relation, Type and Truncate messages, which are few. What a segment hands to the next is one
immutable ``Tail``, so a segment that could not be stored leaves no trace: build it again from the same tail.

Three things are never indexed: rows of a transaction whose session broke before its Commit (``Tail.new_session``
forgets it, and the server sends it again whole); transactions that the log has (their end is not above the log's);
rows outside transactions. Their rows may lie in the segments; no Extent ever covers them.

Outside transactions stand non-transactional logical messages and, against the documentation, StreamAbort: PostgreSQL 18
sends one, whatever was asked for, for each subtransaction of a transaction that outgrew logical_decoding_work_mem and
was found aborted before anything of it was sent (ReorderBufferCheckAndTruncateAbortedTXN in reorderbuffer.c). There is
nothing to forget then. Amid a transaction it would name changes that are here, and is refused.

Source: PostgreSQL documentation, "Logical Replication Message Formats" and "Streaming Replication Protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.changelog.format import (
    SEGMENT_SCHEMA,
    TRANSACTIONS_SCHEMA,
    Announcement,
    Run,
    Segment,
    SegmentInfo,
)
from wal2lake.errors import ProtocolError

XLOG_DATA_HEADER = 25  # 'w', start LSN, end LSN, send time
SEGMENT_BYTES_MAX = 1 << 30  # Arrow binary offsets are 32 bit; one more message (< 1 GB) must still fit

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

_BEGIN, _COMMIT, _RELATION, _TYPE, _TRUNCATE, _MESSAGE, _STREAM_ABORT = (ord(c) for c in "BCRYTMA")
_CHANGES = tuple(ord(c) for c in "IUD")
_SHORTEST = {"B": 21, "C": 26, "O": 10, "R": 10, "Y": 7, "I": 8, "U": 8, "D": 8, "T": 10, "M": 15, "A": 9}
_MIN_LENGTH = np.full(256, np.iinfo(np.int64).max, np.int64)  # an unknown type is never long enough
for _tag, _length in _SHORTEST.items():
    _MIN_LENGTH[ord(_tag)] = _length


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction whose Commit has not come yet; ``rows`` and ``bytes`` count it up to the last segment's end."""

    xid: int
    final_lsn: int
    commit_ts: int
    first_seq: int
    first_row: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Tail:
    """What the next segment must know of all before it."""

    end_lsn: int
    durable_lsn: int
    relations: Mapping[int, bytes] = field(default_factory=dict)
    types: Mapping[int, bytes] = field(default_factory=dict)
    open: OpenTransaction | None = None

    def new_session(self) -> Tail:
        """After START_REPLICATION: a torn transaction comes again whole, and Relations and Types are announced anew."""
        return Tail(self.end_lsn, self.durable_lsn)


class Messages:
    """XLogData messages side by side. ``at`` and ``ends``: where in ``data`` each pgoutput message lies, in bytes."""

    def __init__(self, copy_data: Sequence[bytes]) -> None:
        self.data = b"".join(copy_data)
        self.count = len(copy_data)
        lengths = np.fromiter(map(len, copy_data), np.int64, self.count)
        self.ends: Rows = np.cumsum(lengths)
        self.starts: Rows = self.ends - lengths
        self.at: Rows = self.starts + XLOG_DATA_HEADER
        self.lengths: Rows = lengths - XLOG_DATA_HEADER
        self._check_headers()
        self.lsn = self._gather(">u8", self.starts + 1)
        self.tag = np.frombuffer(self.data, np.uint8)[self.at]
        self._check_lengths()

    def field(self, kind: str, rows: Rows, offset: int) -> Numbers:
        """The big-endian field at ``offset`` of the messages ``rows``; their length must be known to reach it."""
        return self._gather(kind, self.at[rows] + offset)

    def rows_of(self, *tags: int) -> Rows:
        return np.flatnonzero(np.isin(self.tag, tags))

    def payload(self, row: int) -> bytes:
        return self.data[self.at[row] : self.ends[row]]

    def payloads(self) -> pa.Array:
        """All messages without their headers: of the array [message, header, message, …] every other element."""
        offsets = np.empty(2 * self.count, np.int32)
        offsets[0::2], offsets[1::2] = self.at, self.ends
        size = 2 * self.count - 1
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        every_other = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(b"\x55" * (size // 8 + 1))])
        return pa.Array.from_buffers(pa.binary(), size, buffers).filter(every_other)

    def _gather(self, kind: str, at: Rows) -> Numbers:
        size = np.dtype(kind).itemsize
        anywhere: Numbers = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
        return anywhere[at].astype(np.dtype(kind).newbyteorder("="))

    def _check_headers(self) -> None:
        short = np.flatnonzero(self.lengths < 1)
        if short.size:
            raise ProtocolError("The server sent an XLogData message without a logical message in it.")
        if (np.frombuffer(self.data, np.uint8)[self.starts] != ord("w")).any():
            raise ProtocolError("A message that is not XLogData was given to the change log.")

    def _check_lengths(self) -> None:
        bad = np.flatnonzero(self.lengths < _MIN_LENGTH[self.tag])
        if bad.size:
            row = int(bad[0])
            raise ProtocolError(
                f"The server sent a message of type {chr(self.tag[row])!r} and {self.lengths[row]} bytes,"
                " which the change log does not understand.",
                offset=0,
                lsn=int(self.lsn[row]),
            )


def build_segment(copy_data: Sequence[bytes], seq: int, tail: Tail) -> tuple[Segment, Tail]:
    """Make segment ``seq`` of XLogData CopyData payloads ('w', 24 bytes header, message), and the tail behind it.

    Raises ProtocolError, with the LSN, for messages that do not follow each other as the protocol says.
    """
    messages = Messages(copy_data)
    transactions, open_after = _transactions(messages, seq, tail)
    batch, news = _rows(messages, tail), _announced(messages, tail)
    after = _tail(transactions, news, open_after, tail)
    return Segment(_info(batch, transactions, news, seq, tail, after), batch, transactions), after


def _rows(messages: Messages, tail: Tail) -> pa.RecordBatch:
    relation_id = np.zeros(messages.count, np.uint32)
    of_relation = messages.rows_of(*_CHANGES, _RELATION)
    relation_id[of_relation] = messages.field(">u4", of_relation, 1)
    xid = _xids(messages, tail)
    _check_inside(messages, xid)
    columns = [to_arrow(v) for v in (messages.lsn, messages.tag, relation_id, xid)]
    return pa.RecordBatch.from_arrays([*columns, messages.payloads()], schema=SEGMENT_SCHEMA)


def _check_inside(messages: Messages, xid: Numbers) -> None:
    """Only non-transactional logical messages and StreamAbort may stand between a Commit and the next Begin."""
    aborts = messages.tag == _STREAM_ABORT
    outside = np.flatnonzero((xid == 0) & (messages.tag != _MESSAGE) & ~aborts)
    if outside.size:
        raise ProtocolError("The server sent a change outside of a transaction.", lsn=int(messages.lsn[outside[0]]))
    inside = np.flatnonzero(aborts & (xid != 0))
    if inside.size:
        row = int(inside[0])
        raise ProtocolError(f"The server sent StreamAbort amid transaction {xid[row]}.", lsn=int(messages.lsn[row]))


def _xids(messages: Messages, tail: Tail) -> Numbers:
    """The xid around each row: it changes at every Begin and behind every Commit."""
    events = messages.rows_of(_BEGIN, _COMMIT)
    begins = messages.tag[events] == _BEGIN
    values = np.zeros(len(events) + 1, np.uint32)
    values[0] = tail.open.xid if tail.open else 0
    values[1:][begins] = messages.field(">u4", events[begins], 17)
    edges = np.concatenate([[0], np.where(begins, events, events + 1), [messages.count]])
    return np.repeat(values, np.diff(edges))


def _transactions(messages: Messages, seq: int, tail: Tail) -> tuple[pa.RecordBatch, OpenTransaction | None]:
    """The committed transactions that end here and are new to the log; and the one that is still open."""
    _check_alternation(messages, tail)
    begins, commits = _begins(messages, seq, tail), messages.rows_of(_COMMIT)
    total = np.concatenate([[0], np.cumsum(messages.lengths)])
    table = {name: values[: len(commits)] for name, values in begins.items()}
    table["end_lsn"] = messages.field(">u8", commits, 10)
    table["last_row"] = commits
    table["rows"] = commits + 1 + table["rows"]
    table["bytes"] = total[commits + 1] + table["bytes"]
    known = np.maximum.accumulate(np.concatenate([[np.uint64(tail.end_lsn)], table["end_lsn"]]))[:-1]
    fresh = table["end_lsn"] > known
    columns = [to_arrow(table[f.name][fresh], f.type) for f in TRANSACTIONS_SCHEMA]
    index = pa.RecordBatch.from_arrays(columns, schema=TRANSACTIONS_SCHEMA)
    return index, _still_open(begins, len(commits), messages.count, int(total[-1]))


def _begins(messages: Messages, seq: int, tail: Tail) -> dict[str, Numbers]:
    """One entry per transaction seen here, the one carried over first. ``rows`` and ``bytes`` hold what must be added
    to a position in this segment to get the transaction's own count: negative for one that begins here."""
    rows = messages.rows_of(_BEGIN)
    before = np.concatenate([[0], np.cumsum(messages.lengths)])[rows]
    found = {
        "xid": messages.field(">u4", rows, 17),
        "final_lsn": messages.field(">u8", rows, 1),
        "commit_ts": messages.field(">i8", rows, 9),
        "first_seq": np.full(len(rows), seq, np.uint64),
        "first_row": rows,
        "rows": -rows,
        "bytes": -before,
    }
    if tail.open:
        found = {
            name: np.concatenate([np.array([getattr(tail.open, name)], values.dtype), values])
            for name, values in found.items()
        }
    return found


def _still_open(begins: dict[str, Numbers], commits: int, count: int, size: int) -> OpenTransaction | None:
    if len(begins["xid"]) == commits:
        return None
    last = {name: int(values[-1]) for name, values in begins.items()}
    return OpenTransaction(**last | {"rows": last["rows"] + count, "bytes": last["bytes"] + size})


def _check_alternation(messages: Messages, tail: Tail) -> None:
    events = messages.rows_of(_BEGIN, _COMMIT)
    opens = np.concatenate([[tail.open is not None], messages.tag[events] == _BEGIN])
    wrong = np.flatnonzero(opens[1:] == opens[:-1])
    if wrong.size:
        row = events[wrong[0]]
        inside = messages.tag[row] == _BEGIN
        what = "began a transaction inside another" if inside else "committed a transaction that never began"
        raise ProtocolError(f"The server {what}.", lsn=int(messages.lsn[row]))


def count_rows(batch: pa.RecordBatch, payloads: Callable[[], pa.Array]) -> dict[int, dict[str, int]]:
    """Rows of each kind ('I', 'U', 'D', 'T') by relation, from tag and relation_id; a Truncate counts for each
    relation that it names in its payload."""
    tag, relation_id = to_numpy(batch.column("tag")), to_numpy(batch.column("relation_id"))
    changes = np.isin(tag, _CHANGES)
    counts: dict[int, dict[str, int]] = {}
    found = to_arrow(relation_id[changes].astype(np.uint64) << np.uint64(8) | tag[changes]).value_counts()
    for key, number in zip(*(found.field(i).to_pylist() for i in (0, 1)), strict=True):
        counts.setdefault(key >> 8, {})[chr(key & 0xFF)] = number
    for row in np.flatnonzero(tag == _TRUNCATE):
        for oid in truncated_relations(payloads()[row].as_py()):
            kinds = counts.setdefault(oid, {})
            kinds["T"] = kinds.get("T", 0) + 1
    return counts


def truncated_relations(payload: bytes) -> list[int]:
    """The relation OIDs of a Truncate message: type byte, Int32 count, Int8 options, then the OIDs."""
    count = int.from_bytes(payload[1:5], "big")
    if len(payload) != 6 + 4 * count:
        raise ProtocolError("A Truncate message is not as long as its number of relations says.", offset=1)
    oids: list[int] = np.frombuffer(payload, ">u4", count, 6).tolist()
    return oids


def _announced(messages: Messages, tail: Tail) -> tuple[Announcement, ...]:
    """Every Relation message, and the Type messages that say something new.

    The server repeats itself after an invalidation, and a Relation that looks as it did before may tell of another
    table: a last column that was dropped and made anew.
    """
    rows = messages.rows_of(_RELATION, _TYPE)
    types = dict(tail.types)
    news = []
    for row, oid in zip(rows.tolist(), messages.field(">u4", rows, 1).tolist(), strict=True):
        kind, payload = chr(messages.tag[row]), messages.payload(row)
        if kind == "R" or types.get(oid) != payload:
            news.append(Announcement(row, kind, oid, payload))
        if kind == "Y":
            types[oid] = payload
    return tuple(news)


def _tail(
    transactions: pa.RecordBatch,
    news: Sequence[Announcement],
    open_after: OpenTransaction | None,
    tail: Tail,
) -> Tail:
    ends = transactions.column("end_lsn")
    end_lsn = int(ends[-1].as_py()) if len(ends) else tail.end_lsn
    return Tail(
        end_lsn=end_lsn,
        durable_lsn=max(end_lsn, tail.durable_lsn),
        relations={**tail.relations, **{n.oid: n.payload for n in news if n.kind == "R"}},
        types={**tail.types, **{n.oid: n.payload for n in news if n.kind == "Y"}},
        open=open_after,
    )


def _info(
    batch: pa.RecordBatch,
    transactions: pa.RecordBatch,
    news: tuple[Announcement, ...],
    seq: int,
    tail: Tail,
    after: Tail,
) -> SegmentInfo:
    lsn, ends = to_numpy(batch.column("lsn")), to_numpy(transactions.column("end_lsn"))
    return SegmentInfo(
        seq=seq,
        first_lsn=int(lsn[0]),
        last_lsn=int(lsn[-1]),
        rows=batch.num_rows,
        payload_bytes=len(payload_bytes(batch)),
        relations=tail.relations,
        types=tail.types,
        announced=news,
        counts=count_rows(batch, lambda: batch.column("payload")),
        commits=len(ends),
        commit_rows=int(to_numpy(transactions.column("rows")).sum()),
        commit_bytes=int(to_numpy(transactions.column("bytes")).sum()),
        first_commit_end_lsn=int(ends[0]) if len(ends) else 0,
        last_commit_end_lsn=int(ends[-1]) if len(ends) else 0,
        previous_end_lsn=tail.end_lsn,
        end_lsn=after.end_lsn,
        durable_lsn=after.durable_lsn,
        runs=merge_runs(transactions),
    )


def payload_bytes(batch: pa.RecordBatch) -> memoryview:
    """All payloads of the batch, one behind the other, without a copy."""
    column = batch.column("payload")
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, batch.num_rows + 1, 4 * column.offset)
    return memoryview(data)[bounds[0] : bounds[-1]]


def merge_runs(transactions: pa.RecordBatch) -> tuple[Run, ...]:
    """Join transactions of one segment whose rows adjoin; mostly one run is the whole segment."""
    if not transactions.num_rows:
        return ()
    first_seq, first_row = (to_numpy(transactions.column(name)) for name in ("first_seq", "first_row"))
    stop = to_numpy(transactions.column("last_row")).astype(np.int64) + 1
    gaps = np.flatnonzero(first_row[1:] != stop[:-1])
    firsts, lasts = [0, *(gaps + 1)], [*gaps, len(stop) - 1]
    return tuple(Run(int(first_seq[a]), int(first_row[a]), int(stop[b])) for a, b in zip(firsts, lasts, strict=True))


def to_numpy(column: pa.Array) -> Numbers:
    """A number column without NULLs as a view. Arrow's own to_numpy would import pandas, which takes a second."""
    kind = np.dtype(column.type.to_pandas_dtype())
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * kind.itemsize)


def to_arrow(values: Numbers, kind: pa.DataType | None = None) -> pa.Array:
    """A number array as Arrow, likewise without pandas, which pa.array would import."""
    kind = kind or pa.from_numpy_dtype(values.dtype)
    data = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])
