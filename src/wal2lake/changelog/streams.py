"""Transactions that are streamed before their commit: which rows are theirs, until the server says how they end.

Chunks of several transactions come by turns, and lie in the segments as they come. What a chunk has of each
(sub)transaction is noted here, in memory, and nowhere else: a Stream Commit makes of it the extents of the transaction,
without those of aborted subtransactions; a Stream Abort forgets it. After a lost connection the server sends every
transaction that has not ended again from its first chunk, so what was noted is of no use then, and what lies in the
segments is what no index names.

A subtransaction that is aborted before anything of it was sent is never spoken of, so there are few of them. What is
noted grows with the times that the subtransaction changes from row to row, 32 bytes each; the server itself
keeps more of every subtransaction.

Source: PostgreSQL documentation, "Logical Streaming Replication Protocol"; apply_handle_stream_abort in worker.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from wal2lake.columnar.arrays import Numbers, to_arrow
from wal2lake.columnar.headers import STREAM_ABORT, STREAM_COMMIT, STREAM_START, MessageColumns
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.messages import StreamAbort, StreamCommit, StreamStart

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


class Ended(NamedTuple):
    """A streamed transaction that is whole: its Stream Commit, at ``row`` of the segment, and what it consists of."""

    row: int
    commit: StreamCommit
    pieces: Pieces


Streams = Mapping[int, OpenStream]  # by xid


def follow_streams(
    messages: MessageColumns, xid: Numbers, in_chunk: Numbers, seq: int, streams: Streams
) -> tuple[list[Ended], Streams]:
    """The streamed transactions that commit in segment ``seq``, in order, and those that are open behind it.

    ``xid``: around each row; ``in_chunk``: which rows lie in a chunk, its Stream Start and Stop included. Raises
    ProtocolError, with the LSN, for what does not follow as the protocol says; an abort of what was never sent is
    passed over.
    """
    events = messages.rows_of(STREAM_START, STREAM_COMMIT, STREAM_ABORT).tolist()
    if not events and not streams:
        return [], streams
    here = _pieces(messages, xid, in_chunk, seq)
    left = {open_xid: _with(stream, here.get(open_xid)) for open_xid, stream in streams.items()}
    ended: list[Ended] = []
    for row in events:
        match messages.message(row):
            case StreamStart(xid=of, first_segment=first):
                if first == (of in left):
                    what = "twice began to stream" if first else "goes on to stream, and never began,"
                    raise ProtocolError(f"The server {what} transaction {of}.", lsn=int(messages.lsn[row]))
                if first:
                    left[of] = OpenStream((here[of],))
            case StreamAbort(xid=of, subxid=subxid) if of in left:
                if of == subxid:
                    del left[of]
                else:
                    left[of] = replace(left[of], aborted=left[of].aborted | {subxid})
            case StreamCommit(xid=of) as commit:
                if of not in left:
                    what = f"committed transaction {of}, which never began"
                    raise ProtocolError(f"The server {what}.", lsn=int(messages.lsn[row]))
                ended.append(Ended(row, commit, left.pop(of).pieces()))
    return ended, left


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
