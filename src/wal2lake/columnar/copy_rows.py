"""COPY binary rows as Arrow columns, by the same walk as TupleData: a length of −1 is NULL, and there are no kinds.

Source: PostgreSQL documentation, COPY, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from wal2lake.columnar.buffer import BLOCK_ROWS, MessageBatch
from wal2lake.columnar.cells import Policy
from wal2lake.columnar.decoders import copy_decoder
from wal2lake.columnar.tuples import AS_BINARY, NULL, Field, Formats, Walked, decode_field
from wal2lake.columnar.types import TableColumn

_FORMATS: Final[Formats] = {AS_BINARY: copy_decoder}
_NULL_LENGTH = 0xFFFFFFFF


def decode_copy_rows(
    rows: Sequence[bytes], columns: Sequence[TableColumn], relation: str, *, unrepresentable: Policy = "error"
) -> list[pa.Array]:
    """Decode rows (CopyData payloads without the header and the trailer), one array per column.

    Columns of types without a decoder of their binary form (``ColumnType.binary``) must have been selected as text.
    Raises PgoutputDecodeError, and UnrepresentableError unless the policy is "null". ``iter_copy_rows`` spares the copy
    into one.
    """
    parts = list(iter_copy_rows(rows, columns, relation, unrepresentable=unrepresentable))
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]


def iter_copy_rows(
    rows: Sequence[bytes], columns: Sequence[TableColumn], relation: str, *, unrepresentable: Policy = "error"
) -> Iterator[list[pa.Array]]:
    """The same in parts of at most BLOCK_ROWS, the size at which decoding is fastest; at least one, maybe empty."""
    for first in range(0, max(len(rows), 1), BLOCK_ROWS):
        messages = MessageBatch.join(rows[first : first + BLOCK_ROWS], relation)
        walked = walk(messages, len(columns))
        bad = walked.bad | (walked.end != messages.end)
        if bad.any():
            row = int(bad.argmax())
            reason = f"it is no COPY binary row of {len(columns)} columns"
            raise messages.malformed(row, int(messages.start[row]), reason)
        pairs = zip(walked.fields, columns, strict=True)
        yield [decode_field(messages, field, column, _FORMATS, unrepresentable) for field, column in pairs]


def walk(messages: MessageBatch, count: int) -> Walked:
    """Find every column of the rows; ``end`` and ``bad`` are to be checked."""
    bad = messages.source.window(messages.start).astype(np.uint16).byteswap() != count
    position, fields = messages.start + 2, []  # int64[rows]: where each row's next length stands
    for _ in range(count):
        length, kinds = messages.source.lengths(position), None
        null = length == _NULL_LENGTH
        if null.any():
            length[null] = 0
            kinds = np.where(null, np.uint8(NULL), np.uint8(AS_BINARY))
        fields.append(Field(AS_BINARY, kinds, position + 4, length))
        position = position + 4 + length
    return Walked(fields, position, bad)
