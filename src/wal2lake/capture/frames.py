"""What came in XLogData, as the columns that the log takes: here the transport's header ends, for all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from wal2lake.columnar.arrays import gather
from wal2lake.columnar.headers import MessageColumns, Rows
from wal2lake.errors import ProtocolError
from wal2lake.wire.replication import XLOG_DATA_HEADER, XLogData


def without_headers(copy_data: Sequence[bytes]) -> MessageColumns:
    """The LSNs and messages of XLogData CopyData payloads ('w', 24 bytes header, message), in their order.

    Raises ProtocolError for anything else.
    """
    if not copy_data:
        return MessageColumns.of([])
    data, count = b"".join(copy_data), len(copy_data)
    lengths = np.fromiter(map(len, copy_data), np.int64, count)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    if (lengths <= XLOG_DATA_HEADER).any():
        raise ProtocolError("The server sent an XLogData message without a logical message in it.")
    if (gather(data, "u1", starts) != ord(XLogData.tag)).any():
        raise ProtocolError("A message that is not XLogData was given to the change log.")
    return MessageColumns(gather(data, ">u8", starts + 1), _behind(data, starts + XLOG_DATA_HEADER, ends))


def _behind(data: bytes, begins: Rows, ends: Rows) -> pa.Array:
    """What lies in ``data`` from begins to ends: of the array [header, message, header, …] every other element."""
    offsets = np.empty(2 * len(ends), np.int32)
    offsets[0::2], offsets[1::2] = begins, ends
    size = 2 * len(ends) - 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    every_other = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(b"\x55" * (size // 8 + 1))])
    return pa.Array.from_buffers(pa.binary(), size, buffers).filter(every_other)
