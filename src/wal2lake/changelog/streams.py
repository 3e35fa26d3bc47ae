"""Transactions that come before their commit: which rows are theirs, until the server says how they end.

Chunks of several transactions come by turns, and lie in the segments as they come. What a chunk has of each
(sub)transaction is noted here, in memory, and nowhere else: a Stream Commit makes of it the extents of the transaction,
without those of aborted subtransactions; a Stream Abort forgets it. After a lost connection the server sends every
transaction that has not ended again from its first chunk, so what was noted is of no use then, and what lies in the
segments is what no index names.

What is prepared (source.two_phase) is as good as committed to the slot: once its Prepare is acknowledged, only its end
comes. So the segment with the Prepare says which rows are the transaction's, and each segment says where to find that
of those that have not ended, by xid; the name that somebody gave it is in no metadata.

A subtransaction that is aborted before anything of it was sent is never spoken of, so there are few of them. What is
noted grows with the times that the subtransaction changes from row to row, 32 bytes each; the server itself
keeps more of every subtransaction.

Source: PostgreSQL documentation, "Logical Streaming Replication Protocol"; apply_handle_stream_abort in worker.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wal2lake.columnar.arrays import Numbers, to_arrow
from wal2lake.columnar.headers import (
    BEGIN_PREPARE,
    COMMIT_PREPARED,
    PREPARE,
    ROLLBACK_PREPARED,
    STREAM_ABORT,
    STREAM_COMMIT,
    STREAM_PREPARE,
    STREAM_START,
    MessageColumns,
)
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.messages import (
    BeginPrepare,
    CommitPrepared,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
)

_EVENTS: Final = (STREAM_START, STREAM_COMMIT, STREAM_ABORT,
                  BEGIN_PREPARE, PREPARE, STREAM_PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED)  # fmt: skip

EXTENT: Final = pa.struct(
    [
        pa.field("seq", pa.uint64(), nullable=False),
        pa.field("row_start", pa.uint32(), nullable=False),
        pa.field("row_stop", pa.uint32(), nullable=False),
    ]
)


class Pieces(NamedTuple):
    """Rows [start, stop) of segment ``seq`` that are of the (sub)transaction ``subxid``; ``bytes`` of their payloads.
    Arrays, one element a piece, in the order of the log."""

    seq: Numbers
    start: Numbers
    stop: Numbers
    subxid: Numbers
    bytes: Numbers

    @classmethod
    def concat(cls, parts: Sequence[Pieces]) -> Pieces:
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def where(self, mask: Numbers) -> Pieces:
        return Pieces(*(column[mask] for column in self))


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A streamed transaction whose end has not come yet: what there is of it, and which subtransactions aborted."""

    parts: tuple[Pieces, ...]
    aborted: frozenset[int] = frozenset()

    @property
    def first_seq(self) -> int:
        return int(self.parts[0].seq[0])

    def pieces(self) -> Pieces:
        """Of what is not aborted."""
        every = Pieces.concat(self.parts)
        return every.where(~np.isin(every.subxid, np.array([*self.aborted], np.uint32)))


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction of which the Prepare is in segment ``seq``, and which has not ended."""

    seq: int
    pieces: Pieces

    @classmethod
    def of(cls, xid: int, seq: int, known: Extents) -> PreparedTransaction:
        """The inverse of ``extents``."""
        seqs, starts, stops, sizes = np.array(known, np.int64).reshape(-1, 4).T
        return cls(seq, Pieces(seqs.astype(np.uint64), starts, stops, np.full(len(seqs), xid, np.uint32), sizes))

    @property
    def first_seq(self) -> int:
        return int(self.pieces.seq[0])

    def extents(self) -> Extents:
        """The segment, first row, row behind the last, and bytes of the payloads of what adjoins."""
        new = (np.diff(self.pieces.seq.astype(np.int64)) != 0) | (self.pieces.start[1:] != self.pieces.stop[:-1])
        first = np.concatenate([[0], np.flatnonzero(new) + 1])
        stops = self.pieces.stop[np.concatenate([first[1:], [len(self.pieces.seq)]]) - 1]
        columns = self.pieces.seq[first], self.pieces.start[first], stops, np.add.reduceat(self.pieces.bytes, first)
        return tuple(zip(*(map(int, column) for column in columns), strict=True))


class Ended(NamedTuple):
    """A transaction that came in parts and is whole: its Stream Commit or Commit Prepared, at ``row`` of the segment,
    and what it consists of."""

    row: int
    commit: StreamCommit | CommitPrepared
    pieces: Pieces


Extents = Sequence[tuple[int, int, int, int]]
Streams = Mapping[int, OpenStream]  # by xid
PreparedOnes = Mapping[int, PreparedTransaction]  # by xid


class Open(NamedTuple):
    """What has come in part, and what is prepared."""

    streams: Streams
    prepared: PreparedOnes


def follow_streams(
    messages: MessageColumns, xid: Numbers, in_chunk: Numbers, seq: int, known_lsn: int, before: Open
) -> tuple[list[Ended], Open]:
    """The transactions that came in parts and commit in segment ``seq``, in order, and those that are open behind it.

    ``xid``: around each row; ``in_chunk``: which rows lie in a chunk, its Stream Start and Stop included, or from a
    Begin Prepare to its Prepare. ``known_lsn``: the log has all commits that end up to there. Raises ProtocolError,
    with the LSN, for what does not follow as the protocol says; an abort of what was never sent is passed over.
    """
    events = messages.rows_of(*_EVENTS).tolist()
    if not events and not before.streams:
        return [], before
    here = _pieces(messages, xid, in_chunk, seq)
    left = {open_xid: _with(stream, here.get(open_xid)) for open_xid, stream in before.streams.items()}
    following = _Following(messages, here, seq, known_lsn, left, dict(before.prepared))
    for row in events:
        following.take(row)
    return following.ended, Open(left, following.prepared)


@dataclass
class _Following:
    """A segment, event by event: ``streams`` and ``prepared`` are what is open by then, ``ended`` what is whole."""

    messages: MessageColumns
    here: Mapping[int, Pieces]
    seq: int
    known_lsn: int
    streams: dict[int, OpenStream]
    prepared: dict[int, PreparedTransaction]
    ended: list[Ended] = field(default_factory=list)

    def take(self, row: int) -> None:
        match self.messages.message(row):
            case StreamStart(xid=of, first_segment=first):
                self._start(row, of, first=first)
            case StreamAbort(xid=of, subxid=subxid) if of in self.streams:
                self._abort(of, subxid)
            case BeginPrepare(xid=of):
                if of in self.streams:
                    raise self._unexpected(row, f"began to prepare transaction {of}, which it streams")
                self.streams[of] = OpenStream((self.here[of],))
            case Prepare(xid=of) | StreamPrepare(xid=of):
                pieces = self._whole(row, "prepared", of)
                self.prepared[of] = PreparedTransaction(self.seq, pieces)
            case RollbackPrepared(xid=of):
                self.prepared.pop(of, None)
            case StreamCommit(xid=of) as commit:
                self.ended.append(Ended(row, commit, self._whole(row, "committed", of)))
            case CommitPrepared() as commit:
                self._commit_prepared(row, commit)

    def _start(self, row: int, of: int, *, first: bool) -> None:
        if first == (of in self.streams):
            what = "twice began to stream" if first else "goes on to stream, and never began,"
            raise self._unexpected(row, f"{what} transaction {of}")
        if first:
            self.streams[of] = OpenStream((self.here[of],))

    def _abort(self, of: int, subxid: int) -> None:
        stream = self.streams.pop(of)
        if of != subxid:
            self.streams[of] = replace(stream, aborted=stream.aborted | {subxid})

    def _whole(self, row: int, what: str, of: int) -> Pieces:
        if of not in self.streams:
            raise self._unexpected(row, f"{what} transaction {of}, which never began")
        return self.streams.pop(of).pieces()

    def _commit_prepared(self, row: int, commit: CommitPrepared) -> None:
        if commit.xid in self.prepared:
            self.ended.append(Ended(row, commit, self.prepared.pop(commit.xid).pieces))
        elif commit.end_lsn > self.known_lsn:
            raise self._unexpected(row, f"committed transaction {commit.xid}, which was never prepared")

    def _unexpected(self, row: int, what: str) -> ProtocolError:
        return ProtocolError(f"The server {what}.", lsn=int(self.messages.lsn[row]))


def _with(stream: OpenStream, more: Pieces | None) -> OpenStream:
    return stream if more is None else replace(stream, parts=(*stream.parts, more))


def _pieces(messages: MessageColumns, xid: Numbers, in_chunk: Numbers, seq: int) -> dict[int, Pieces]:
    """What the segment has of each streamed transaction. An xid is of one transaction in a session of the stream."""
    rows = np.flatnonzero(in_chunk)
    if not len(rows):
        return {}
    # what has no xid of its own, as Stream Start, is the transaction's
    top, sub = xid[rows], np.where(messages.subxid[rows] == 0, xid[rows], messages.subxid[rows])
    new = (np.diff(rows) != 1) | (top[1:] != top[:-1]) | (sub[1:] != sub[:-1])
    first = np.concatenate([[0], np.flatnonzero(new) + 1])
    last = np.concatenate([first[1:], [len(rows)]]) - 1
    total = np.concatenate([[0], np.cumsum(messages.lengths)])
    start, stop = rows[first], rows[last] + 1
    size = total[stop] - total[start]
    every = Pieces(np.full(len(first), seq, np.uint64), start, stop, sub[first], size)
    return {int(of): every.where(top[first] == of) for of in np.unique(top)}


def extents(ended: Sequence[Ended], seq: int) -> tuple[pa.ListArray, dict[str, Numbers]]:
    """For the index of segment ``seq``: the extents of each transaction, a list of EXTENT, the last its Stream Commit;
    and the other columns that only its pieces tell: ``first_seq``, ``first_row``, ``rows``, ``bytes``."""
    lists = [_joined(one, seq) for one in ended]
    columns = [np.concatenate(parts) for parts in zip(*lists, strict=True)] if lists else [np.empty(0, np.int64)] * 3
    offsets = np.concatenate([[0], np.cumsum([len(starts) for _, starts, _ in lists])]).astype(np.int32)
    struct = pa.StructArray.from_arrays(
        [to_arrow(column, EXTENT.field(i).type) for i, column in enumerate(columns)], fields=list(EXTENT)
    )
    known = {
        "first_seq": [seqs[0] for seqs, _, _ in lists],
        "first_row": [starts[0] for _, starts, _ in lists],
        "rows": [(stops - starts).sum() for _, starts, stops in lists],
        "bytes": [one.pieces.bytes.sum() for one in ended],
    }
    return pa.ListArray.from_arrays(to_arrow(offsets), struct), {n: np.array(v, np.int64) for n, v in known.items()}


def no_extents(count: int) -> pa.ListArray:
    """Of ``count`` transactions that were not streamed."""
    struct = pa.StructArray.from_arrays([to_arrow(np.empty(0), field.type) for field in EXTENT], fields=list(EXTENT))
    return pa.ListArray.from_arrays(to_arrow(np.zeros(count + 1, np.int32)), struct)


def _joined(one: Ended, seq: int) -> tuple[Numbers, Numbers, Numbers]:
    """seq, row_start, row_stop of the extents; what adjoins is one."""
    seqs = np.concatenate([one.pieces.seq, [np.uint64(seq)]]).astype(np.int64)
    starts = np.concatenate([one.pieces.start, [one.row]])
    stops = np.concatenate([one.pieces.stop, [one.row + 1]])
    new = (seqs[1:] != seqs[:-1]) | (starts[1:] != stops[:-1])
    first = np.concatenate([[0], np.flatnonzero(new) + 1])
    last = np.concatenate([first[1:], [len(seqs)]]) - 1
    return seqs[first], starts[first], stops[last]
