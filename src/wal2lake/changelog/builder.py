"""Messages become a segment by columns (columnar/headers.py). What a segment hands to the next is one
immutable ``Tail``, so a segment that could not be stored leaves no trace: build it again from the same tail.

A transaction comes in one piece, from Begin to Commit, or, if it is streamed or prepared, in parts before its Stream
Commit or Commit Prepared (streams.py). All are indexed where they end, so the index is in the order of the commits.

What is never indexed: rows of a transaction whose session broke before its end (``Tail.new_session`` forgets it, and
the server sends it again whole); transactions that the log has (their end is not above the log's); what was streamed
and aborted; rows outside transactions. Their rows may lie in the segments; no Extent ever covers them.

Outside transactions stand non-transactional logical messages and, against the documentation, StreamAbort: PostgreSQL 18
sends one, whatever was asked for, for each subtransaction of a transaction that outgrew logical_decoding_work_mem and
was found aborted before anything of it was sent (ReorderBufferCheckAndTruncateAbortedTXN in reorderbuffer.c). There is
nothing to forget then. Inside a transaction or a chunk it is refused.

Source: PostgreSQL documentation, "Logical Replication Message Formats", "Logical Streaming Replication Protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from wal2lake.changelog.format import (
    SEGMENT_SCHEMA,
    STREAMED_SCHEMA,
    TRANSACTIONS_SCHEMA,
    Announcement,
    Run,
    Segment,
    SegmentInfo,
)
from wal2lake.changelog.relations import InForce
from wal2lake.changelog.streams import Ended, Open, PreparedOnes, Streams, extents, follow_streams, no_extents
from wal2lake.columnar.arrays import Numbers, to_arrow, to_numpy
from wal2lake.columnar.headers import (
    BEGIN,
    BEGIN_PREPARE,
    COMMIT,
    COMMIT_PREPARED,
    DELETE,
    INSERT,
    MESSAGE,
    PREPARE,
    RELATION,
    ROLLBACK_PREPARED,
    STREAM_ABORT,
    STREAM_COMMIT,
    STREAM_PREPARE,
    STREAM_START,
    STREAM_STOP,
    TRUNCATE,
    TYPE,
    UPDATE,
    MessageColumns,
    subject,
    truncated_relations,
)
from wal2lake.errors import ProtocolError

SEGMENT_BYTES_MAX = 1 << 30  # Arrow binary offsets are 32 bit; one more message (< 1 GB) must still fit

_CHANGES = (INSERT, UPDATE, DELETE)
_OPENING, _CLOSING = (BEGIN, STREAM_START, BEGIN_PREPARE), (COMMIT, STREAM_STOP, PREPARE)
_OUTSIDE = {STREAM_COMMIT: "Stream Commit", STREAM_ABORT: "StreamAbort", STREAM_PREPARE: "Stream Prepare",
            COMMIT_PREPARED: "Commit Prepared", ROLLBACK_PREPARED: "Rollback Prepared"}  # fmt: skip


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
    """What the next segment must know of all before it. ``chunk``: the xid of a streamed chunk that is cut in two;
    ``preparing``: of a transaction that is, between its Begin Prepare and its Prepare. ``fresh``: nothing came in this
    session yet."""

    end_lsn: int
    durable_lsn: int
    in_force: InForce = field(default_factory=InForce)
    open: OpenTransaction | None = None
    streams: Streams = field(default_factory=dict)
    prepared: PreparedOnes = field(default_factory=dict)
    chunk: int = 0
    preparing: int = 0
    fresh: bool = True

    def open_from(self, seq: int) -> int:
        """The first segment with rows of what came in parts and has not ended; ``seq`` if there is nothing."""
        return min((one.first_seq for known in (self.streams, self.prepared) for one in known.values()), default=seq)

    def new_session(self) -> Tail:
        """After START_REPLICATION: what has not ended comes again whole, but for what is prepared, of which perhaps
        the end comes alone; and Relations and Types are announced anew."""
        return Tail(self.end_lsn, self.durable_lsn, prepared=self.prepared)


def build_segment(messages: MessageColumns, seq: int, tail: Tail) -> tuple[Segment, Tail]:
    """Make segment ``seq`` of messages (one at least), and the tail behind it.

    What ``tail`` says is in force the segment names by its files.

    Raises ProtocolError, with the LSN, for messages that do not follow each other as the protocol says.
    """
    _check_alternation(messages, tail)
    xid, in_chunk = _around(messages, tail)
    batch, news = _rows(messages, xid), _announced(messages, tail)
    ended, left = follow_streams(messages, xid, in_chunk, seq, tail.end_lsn, Open(tail.streams, tail.prepared))
    whole, open_after = _whole(messages, seq, tail)
    transactions = _index(tail.end_lsn, whole, _streamed(ended, seq, messages))
    cut = _cut(messages, xid, in_chunk, tail)
    ended_xids = to_numpy(transactions.column("xid")).tolist()
    prepared = {xid: one for xid, one in left.prepared.items() if xid not in ended_xids}  # it may have come once more
    after = _tail(transactions, news, tail, open=open_after, streams=left.streams, prepared=prepared, **cut)
    return Segment(_info(batch, transactions, news, seq, tail, after), batch, transactions), after


def _cut(messages: MessageColumns, xid: Numbers, in_chunk: Numbers, tail: Tail) -> dict[str, int]:
    """Of Tail, which chunk or transaction that is being prepared goes on in the next segment."""
    if not in_chunk[-1] or messages.tag[-1] in (STREAM_STOP, PREPARE):
        return {}
    began = messages.rows_of(STREAM_START, BEGIN_PREPARE)
    preparing = messages.tag[began[-1]] == BEGIN_PREPARE if len(began) else bool(tail.preparing)
    return {"preparing" if preparing else "chunk": int(xid[-1])}


def _rows(messages: MessageColumns, around: Numbers) -> pa.RecordBatch:
    relation_id, xid = np.zeros(len(messages), np.uint32), around.copy()
    of_relation, commits = messages.rows_of(*_CHANGES, RELATION), messages.rows_of(STREAM_COMMIT)
    of_prepared = messages.rows_of(COMMIT_PREPARED)
    relation_id[of_relation] = messages.ids(of_relation)
    xid[commits], xid[of_prepared] = messages.streams(commits), messages.prepared(of_prepared)
    columns = [to_arrow(v) for v in (messages.lsn, messages.tag, relation_id, xid)]
    if not messages.subxid.any():
        return pa.RecordBatch.from_arrays([*columns, messages.payload], schema=SEGMENT_SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, messages.payload, to_arrow(messages.subxid)], schema=STREAMED_SCHEMA)


def _around(messages: MessageColumns, tail: Tail) -> tuple[Numbers, Numbers]:
    """The xid around each row, which changes where a transaction or a chunk begins and behind its end; and which rows
    are in a chunk, as all from a Begin Prepare to its Prepare are. Raises ProtocolError for what may not stand where it
    stands."""
    events = messages.rows_of(*_OPENING, *_CLOSING)
    tags = messages.tag[events]
    opens = np.isin(tags, _OPENING)
    values, chunks = np.zeros(len(events) + 1, np.uint32), np.zeros(len(events) + 1, bool)
    values[0] = tail.open.xid if tail.open else tail.chunk or tail.preparing
    begins, starts, prepares = (np.flatnonzero(tags == tag) for tag in _OPENING)
    values[1 + begins] = messages.begins(events[begins])["xid"]
    values[1 + starts] = messages.streams(events[starts])
    values[1 + prepares] = messages.prepares(events[prepares])
    chunks[0], chunks[1 + starts], chunks[1 + prepares] = bool(tail.chunk or tail.preparing), True, True
    lengths = np.diff(np.concatenate([[0], np.where(opens, events, events + 1), [len(messages)]]))
    xid, in_chunk = np.repeat(values, lengths), np.repeat(chunks, lengths)
    _check_inside(messages, xid)
    return xid, in_chunk


def _check_inside(messages: MessageColumns, xid: Numbers) -> None:
    """Only non-transactional logical messages and what ends a transaction that came in parts may stand outside of one,
    and the latter only there."""
    ends = np.isin(messages.tag, [*_OUTSIDE])
    outside = np.flatnonzero((xid == 0) & (messages.tag != MESSAGE) & ~ends)
    if outside.size:
        raise ProtocolError("The server sent a change outside of a transaction.", lsn=int(messages.lsn[outside[0]]))
    inside = np.flatnonzero(ends & (xid != 0))
    if inside.size:
        row = int(inside[0])
        what = _OUTSIDE[int(messages.tag[row])]
        raise ProtocolError(f"The server sent {what} amid transaction {xid[row]}.", lsn=int(messages.lsn[row]))


def _whole(messages: MessageColumns, seq: int, tail: Tail) -> tuple[dict[str, Numbers], OpenTransaction | None]:
    """The transactions from Begin to Commit that end here, as columns of the index; and the one that is still open."""
    begins, commits = _begins(messages, seq, tail), messages.rows_of(COMMIT)
    total = np.concatenate([[0], np.cumsum(messages.lengths)])
    table = {name: values[: len(commits)] for name, values in begins.items()}
    table["end_lsn"] = messages.end_lsns(commits)
    table["last_row"] = commits
    table["rows"] = commits + 1 + table["rows"]
    table["bytes"] = total[commits + 1] + table["bytes"]
    return table, _still_open(begins, len(commits), len(messages), int(total[-1]))


def _streamed(ended: Sequence[Ended], seq: int, messages: MessageColumns) -> dict[str, Any]:
    """The same of the streamed transactions that end here, with their ``extents``; nothing where there is none."""
    if not ended:
        return {}
    lists, table = extents(ended, seq)
    commits, last_row = [one.commit for one in ended], np.array([one.row for one in ended])
    return {
        **table,
        "xid": np.array([commit.xid for commit in commits], np.uint32),
        "final_lsn": np.array([commit.commit_lsn for commit in commits], np.uint64),
        "end_lsn": np.array([commit.end_lsn for commit in commits], np.uint64),
        "commit_ts": np.array([commit.commit_ts for commit in commits], np.int64),
        "last_row": last_row,
        "bytes": table["bytes"] + messages.lengths[last_row],
        "extents": lists,
    }


def _index(known_lsn: int, whole: dict[str, Numbers], streamed: dict[str, Any]) -> pa.RecordBatch:
    """The committed transactions that are new to the log, which had all up to ``known_lsn``, in the order of their
    ends."""
    names, lists = [name for name in TRANSACTIONS_SCHEMA.names if name != "extents"], no_extents(len(whole["last_row"]))
    table = {name: whole[name] for name in names}
    if streamed:
        table = {name: np.concatenate([whole[name], streamed[name]]) for name in names}
        order = np.argsort(table["last_row"], kind="stable")
        table = {name: values[order] for name, values in table.items()}
        lists = pa.concat_arrays([lists, streamed["extents"]]).take(to_arrow(order))
    ends = table["end_lsn"]
    fresh = ends > np.maximum.accumulate(np.concatenate([[np.uint64(known_lsn)], ends]))[:-1]
    columns = [to_arrow(table[name][fresh], TRANSACTIONS_SCHEMA.field(name).type) for name in names]
    lists = lists if fresh.all() else lists.take(to_arrow(np.flatnonzero(fresh)))
    return pa.RecordBatch.from_arrays([*columns, lists], schema=TRANSACTIONS_SCHEMA)


def _begins(messages: MessageColumns, seq: int, tail: Tail) -> dict[str, Numbers]:
    """One entry per transaction seen here, the one carried over first. ``rows`` and ``bytes`` hold what must be added
    to a position in this segment to get the transaction's own count: negative for one that begins here."""
    rows = messages.rows_of(BEGIN)
    before = np.concatenate([[0], np.cumsum(messages.lengths)])[rows]
    found = {
        **messages.begins(rows),
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


def _check_alternation(messages: MessageColumns, tail: Tail) -> None:
    """Transactions and chunks do not lie in each other, and each ends as it began."""
    events = messages.rows_of(*_OPENING, *_CLOSING)
    tags = messages.tag[events]
    first = COMMIT if tail.open else STREAM_STOP if tail.chunk else PREPARE if tail.preparing else 0
    awaited = np.zeros(len(events) + 1, np.uint8)  # what the transaction or chunk ends with that is open, 0: none is
    awaited[0] = first
    for opening, closing in zip(_OPENING, _CLOSING, strict=True):
        awaited[1:][tags == opening] = closing
    closes = np.isin(tags, _CLOSING)
    wrong = np.flatnonzero(np.where(closes, tags != awaited[:-1], awaited[:-1] != 0))
    if wrong.size:
        row = events[wrong[0]]
        inside = not closes[wrong[0]]
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
    for row in np.flatnonzero(tag == TRUNCATE):
        for oid in truncated_relations(payloads()[row].as_py()):
            kinds = counts.setdefault(oid, {})
            kinds["T"] = kinds.get("T", 0) + 1
    return counts


def _announced(messages: MessageColumns, tail: Tail) -> tuple[Announcement, ...]:
    """Every Relation message, and the Type messages that say something new.

    The server repeats itself after an invalidation, and a Relation that looks as it did before may tell of another
    table: a last column that was dropped and made anew.
    """
    rows = messages.rows_of(RELATION, TYPE)
    types: dict[bytes, bytes] = {}
    news = []
    for row, oid in zip(rows.tolist(), messages.ids(rows).tolist(), strict=True):
        kind, payload = chr(messages.tag[row]), messages.payload_of(row)
        about = subject(payload)
        if kind == "R" or types.get(about, tail.in_force.messages.get(about)) != payload:
            news.append(Announcement(row, kind, oid, payload))
        if kind == "Y":
            types[about] = payload
    return tuple(news)


def _tail(transactions: pa.RecordBatch, news: Sequence[Announcement], tail: Tail, **open_after: Any) -> Tail:
    ends = transactions.column("end_lsn")
    end_lsn = int(ends[-1].as_py()) if len(ends) else tail.end_lsn
    in_force = tail.in_force.announce(n.payload for n in news)
    return Tail(end_lsn, max(end_lsn, tail.durable_lsn), in_force, fresh=False, **open_after)


def _info(
    batch: pa.RecordBatch,
    transactions: pa.RecordBatch,
    news: tuple[Announcement, ...],
    seq: int,
    tail: Tail,
    after: Tail,
) -> SegmentInfo:
    lsn, ends = to_numpy(batch.column("lsn")), to_numpy(transactions.column("end_lsn"))
    streamed = int((list_sizes(transactions) > 0).sum())
    return SegmentInfo(
        seq=seq,
        first_lsn=int(lsn[0]),
        last_lsn=int(lsn[-1]),
        rows=batch.num_rows,
        payload_bytes=len(payload_bytes(batch)),
        relation_files=tail.in_force.names,
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
        runs=() if streamed else merge_runs(transactions),
        streamed=streamed,
        commits_from=int(to_numpy(transactions.column("first_seq")).min(initial=seq)),
        open_before=tail.open_from(seq),
        open_after=after.open_from(seq),
        prepared={xid: one.seq for xid, one in after.prepared.items()},
        prepared_here={xid: one.extents() for xid, one in after.prepared.items() if one.seq == seq},
        begins_session=tail.fresh,
    )


def payload_bytes(batch: pa.RecordBatch) -> memoryview:
    """All payloads of the batch, one behind the other, without a copy."""
    column = batch.column("payload")
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, batch.num_rows + 1, 4 * column.offset)
    return memoryview(data)[bounds[0] : bounds[-1]]


def list_sizes(transactions: pa.RecordBatch) -> Numbers:
    """How many extents the index lists of each transaction: 0 of those that came in one piece."""
    sizes: Numbers = to_numpy(transactions.column("extents").value_lengths())
    return sizes


def merge_runs(transactions: pa.RecordBatch) -> tuple[Run, ...]:
    """Join transactions of one segment whose rows adjoin; mostly one run is the whole segment. None was streamed."""
    if not transactions.num_rows:
        return ()
    first_seq, first_row = (to_numpy(transactions.column(name)) for name in ("first_seq", "first_row"))
    stop = to_numpy(transactions.column("last_row")).astype(np.int64) + 1
    gaps = np.flatnonzero(first_row[1:] != stop[:-1])
    firsts, lasts = [0, *(gaps + 1)], [*gaps, len(stop) - 1]
    return tuple(Run(int(first_seq[a]), int(first_row[a]), int(stop[b])) for a, b in zip(firsts, lasts, strict=True))
