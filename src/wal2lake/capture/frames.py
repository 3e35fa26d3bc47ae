"""What came in XLogData, as the columns that the log takes: here the transport's header ends, for all at once.

Inside a chunk of a streamed transaction each message has the xid of its (sub)transaction behind the tag. It becomes a
column of its own here, and the message is as it would be in a transaction that comes whole, so that nobody behind the
capture needs to know how it came.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from wal2lake.columnar.arrays import Numbers, gather
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.headers import IN_STREAM_XID, STREAM_START, STREAM_STOP, XID_BYTES, MessageColumns, Rows
from wal2lake.errors import ProtocolError
from wal2lake.wire.replication import XLOG_DATA_HEADER, XLogData


def without_headers(copy_data: Sequence[bytes], *, in_chunk: bool = False) -> MessageColumns:
    """The LSNs and messages of XLogData CopyData payloads ('w', 24 bytes header, message), in their order.

    ``in_chunk``: the first of them stands in a chunk that began before. Raises ProtocolError for anything else.
    """
    return without_headers_in(Framed.of(copy_data), in_chunk=in_chunk)


def without_headers_in(framed: Framed, *, in_chunk: bool = False) -> MessageColumns:
    """As ``without_headers``; what ``framed`` is in is changed."""
    data, starts, ends = framed.data, framed.begins, framed.ends
    if not len(starts):
        return MessageColumns.of([])
    if (ends - starts <= XLOG_DATA_HEADER).any():
        raise ProtocolError("The server sent an XLogData message without a logical message in it.")
    if (gather(data, "u1", starts) != ord(XLogData.tag)).any():
        raise ProtocolError("A message that is not XLogData was given to the change log.")
    lsn, begins, subxid = gather(data, ">u8", starts + 1), starts + XLOG_DATA_HEADER, None
    prefixed = _prefixed(gather(data, "u1", begins), in_chunk=in_chunk)
    if len(prefixed):
        subxid = np.zeros(len(starts), np.uint32)
        begins, subxid[prefixed] = _without_xids(data, begins, ends, prefixed, lsn)
    return MessageColumns(lsn, _behind(data, begins, ends), subxid)


def _prefixed(tags: Numbers, *, in_chunk: bool) -> Rows:
    """Which messages have an xid behind the tag."""
    starts, stops = tags == STREAM_START, tags == STREAM_STOP
    if not in_chunk and not starts.any():
        return np.empty(0, np.int64)
    depth = np.cumsum(starts.astype(np.int64) - stops) + in_chunk
    return np.flatnonzero((depth > 0) & np.isin(tags, IN_STREAM_XID))


def _without_xids(data: bytearray, begins: Rows, ends: Rows, rows: Rows, lsn: Numbers) -> tuple[Rows, Numbers]:
    """Where the messages begin when the tags of ``rows`` have moved behind their xids; and the xids."""
    at = begins[rows]
    short = ends[rows] - at <= XID_BYTES
    if short.any():
        raise ProtocolError("A message in a streamed chunk has no xid.", offset=1, lsn=int(lsn[rows[short.argmax()]]))
    xids = gather(data, ">u4", at + 1)
    if not xids.all():
        raise ProtocolError("A message in a streamed chunk is of xid 0.", offset=1, lsn=int(lsn[rows[xids.argmin()]]))
    cells = np.frombuffer(data, np.uint8)
    cells[at + XID_BYTES] = cells[at]
    moved = begins.copy()
    moved[rows] += XID_BYTES
    return moved, xids


def _behind(data: bytearray, begins: Rows, ends: Rows) -> pa.Array:
    """What lies in ``data`` from begins to ends: of the array [header, message, header, …] every other element."""
    offsets = np.empty(2 * len(ends), np.int32)
    offsets[0::2], offsets[1::2] = begins, ends
    size = 2 * len(ends) - 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    every_other = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(b"\x55" * (size // 8 + 1))])
    return pa.Array.from_buffers(pa.binary(), size, buffers).filter(every_other)
