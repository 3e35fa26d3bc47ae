"""Messages become a segment by columns (columnar/headers.py). What a segment hands to the next is one
immutable ``Tail``, so a segment that could not be stored leaves no trace: build it again from the same tail.

Three things are never indexed: rows of a transaction whose session broke before its Commit (``Tail.new_session``
forgets it, and the server sends it again whole); transactions that the log has (their end is not above the log's);
rows outside transactions. Their rows may lie in the segments; no Extent ever covers them.

Outside transactions stand non-transactional logical messages and, against the documentation, StreamAbort: PostgreSQL 18
sends one, whatever was asked for, for each subtransaction of a transaction that outgrew logical_decoding_work_mem and
was found aborted before anything of it was sent (ReorderBufferCheckAndTruncateAbortedTXN in reorderbuffer.c). There is
nothing to forget then. Amid a transaction it would name changes that are here, and is refused.

Source: PostgreSQL documentation, "Logical Replication Message Formats", "Logical Streaming Replication Protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from wal2lake.changelog.format import (
    SEGMENT_SCHEMA,
    TRANSACTIONS_SCHEMA,
    Announcement,
    Run,
    Segment,
    SegmentInfo,
)
from wal2lake.changelog.relations import InForce
from wal2lake.columnar.arrays import Numbers, to_arrow, to_numpy
from wal2lake.columnar.headers import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    MESSAGE,
    RELATION,
    STREAM_ABORT,
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
    in_force: InForce = field(default_factory=InForce)
    open: OpenTransaction | None = None

    def new_session(self) -> Tail:
        """After START_REPLICATION: a torn transaction comes again whole, and Relations and Types are announced anew."""
        return Tail(self.end_lsn, self.durable_lsn)


def build_segment(messages: MessageColumns, seq: int, tail: Tail) -> tuple[Segment, Tail]:
    """Make segment ``seq`` of messages (one at least), and the tail behind it.

    What ``tail`` says is in force the segment names by its files.

    Raises ProtocolError, with the LSN, for messages that do not follow each other as the protocol says.
    """
    transactions, open_after = _transactions(messages, seq, tail)
    batch, news = _rows(messages, tail), _announced(messages, tail)
    after = _tail(transactions, news, open_after, tail)
    return Segment(_info(batch, transactions, news, seq, tail, after), batch, transactions), after


def _rows(messages: MessageColumns, tail: Tail) -> pa.RecordBatch:
    relation_id = np.zeros(len(messages), np.uint32)
    of_relation = messages.rows_of(*_CHANGES, RELATION)
    relation_id[of_relation] = messages.ids(of_relation)
    xid = _xids(messages, tail)
    _check_inside(messages, xid)
    columns = [to_arrow(v) for v in (messages.lsn, messages.tag, relation_id, xid)]
    return pa.RecordBatch.from_arrays([*columns, messages.payload], schema=SEGMENT_SCHEMA)


def _check_inside(messages: MessageColumns, xid: Numbers) -> None:
    """Only non-transactional logical messages and StreamAbort may stand between a Commit and the next Begin."""
    aborts = messages.tag == STREAM_ABORT
    outside = np.flatnonzero((xid == 0) & (messages.tag != MESSAGE) & ~aborts)
    if outside.size:
        raise ProtocolError("The server sent a change outside of a transaction.", lsn=int(messages.lsn[outside[0]]))
    inside = np.flatnonzero(aborts & (xid != 0))
    if inside.size:
        row = int(inside[0])
        raise ProtocolError(f"The server sent StreamAbort amid transaction {xid[row]}.", lsn=int(messages.lsn[row]))


def _xids(messages: MessageColumns, tail: Tail) -> Numbers:
    """The xid around each row: it changes at every Begin and behind every Commit."""
    events = messages.rows_of(BEGIN, COMMIT)
    begins = messages.tag[events] == BEGIN
    values = np.zeros(len(events) + 1, np.uint32)
    values[0] = tail.open.xid if tail.open else 0
    values[1:][begins] = messages.begins(events[begins])["xid"]
    edges = np.concatenate([[0], np.where(begins, events, events + 1), [len(messages)]])
    return np.repeat(values, np.diff(edges))


def _transactions(messages: MessageColumns, seq: int, tail: Tail) -> tuple[pa.RecordBatch, OpenTransaction | None]:
    """The committed transactions that end here and are new to the log; and the one that is still open."""
    _check_alternation(messages, tail)
    begins, commits = _begins(messages, seq, tail), messages.rows_of(COMMIT)
    total = np.concatenate([[0], np.cumsum(messages.lengths)])
    table = {name: values[: len(commits)] for name, values in begins.items()}
    table["end_lsn"] = messages.end_lsns(commits)
    table["last_row"] = commits
    table["rows"] = commits + 1 + table["rows"]
    table["bytes"] = total[commits + 1] + table["bytes"]
    known = np.maximum.accumulate(np.concatenate([[np.uint64(tail.end_lsn)], table["end_lsn"]]))[:-1]
    fresh = table["end_lsn"] > known
    columns = [to_arrow(table[f.name][fresh], f.type) for f in TRANSACTIONS_SCHEMA]
    index = pa.RecordBatch.from_arrays(columns, schema=TRANSACTIONS_SCHEMA)
    return index, _still_open(begins, len(commits), len(messages), int(total[-1]))


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
    events = messages.rows_of(BEGIN, COMMIT)
    opens = np.concatenate([[tail.open is not None], messages.tag[events] == BEGIN])
    wrong = np.flatnonzero(opens[1:] == opens[:-1])
    if wrong.size:
        row = events[wrong[0]]
        inside = messages.tag[row] == BEGIN
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
        in_force=tail.in_force.announce(n.payload for n in news),
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
