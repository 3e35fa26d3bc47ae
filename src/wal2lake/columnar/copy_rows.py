"""COPY binary rows as Arrow columns, by the same walk as TupleData: a length of −1 is NULL, and there are no kinds.

Columns of fixed width that stand side by side are gathered together, with the head of what follows them. That they
stand there is looked at in each row: from the first column on whose lengths are not all what they should be, as where
some are NULL, the next is looked for anew.

Source: PostgreSQL documentation, COPY, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from wal2lake.columnar.buffer import SPAN, MessageBatch, Near, Positions
from wal2lake.columnar.cells import Policy
from wal2lake.columnar.decoders import copy_decoder, copy_width
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.tuples import AS_BINARY, NULL, Field, Formats, Walked, decode_field
from wal2lake.columnar.types import TableColumn

BLOCK_ROWS: Final = 16384  # what is gathered needs the cache less than the calls for a part cost
_FORMATS: Final[Formats] = {AS_BINARY: copy_decoder}
_NULL_LENGTH: Final = 0xFFFFFFFF
_COUNT_BYTES, _LENGTH_BYTES = 2, 4
_HEAD_BYTES: Final = 16  # of a value without a fixed width, gathered too: a numeric and its first four digits


def decode_copy_rows(
    rows: Sequence[bytes], columns: Sequence[TableColumn], relation: str, *, unrepresentable: Policy = "error"
) -> list[pa.Array]:
    """Decode rows (CopyData payloads without the header and the trailer), one array per column.

    Columns of types without a decoder of their binary form (``ColumnType.binary``) must have been selected as text.
    Raises PgoutputDecodeError, and UnrepresentableError unless the policy is "null". ``iter_copy_rows`` spares the copy
    into one.
    """
    parts = list(iter_copy_rows(Framed.of(rows), columns, relation, unrepresentable=unrepresentable))
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True)]


def iter_copy_rows(
    rows: Framed, columns: Sequence[TableColumn], relation: str, *, unrepresentable: Policy = "error"
) -> Iterator[list[pa.Array]]:
    """The same in parts of at most BLOCK_ROWS, the size at which decoding is fastest; at least one, maybe empty."""
    for first in range(0, max(len(rows), 1), BLOCK_ROWS):
        messages = MessageBatch.framed(rows[first : first + BLOCK_ROWS], relation)
        walked = walk(messages, columns)
        bad = walked.bad | (walked.end != messages.end)
        if bad.any():
            row = int(bad.argmax())
            reason = f"it is no COPY binary row of {len(columns)} columns"
            raise messages.malformed(row, int(messages.start[row]), reason)
        pairs = zip(walked.fields, columns, strict=True)
        yield [decode_field(messages, field, column, _FORMATS, unrepresentable) for field, column in pairs]


def walk(messages: MessageBatch, columns: Sequence[TableColumn]) -> Walked:
    """Find every column of the rows; ``end`` and ``bad`` are to be checked."""
    widths = [copy_width(column.type) for column in columns]
    bad = messages.source.window(messages.start).astype(np.uint16).byteswap() != len(widths)
    position, fields = messages.start + _COUNT_BYTES, list[Field]()  # int64[rows]: where each row's next length stands
    while len(fields) < len(widths):
        run, size = _run(widths[len(fields) :])
        near = messages.source.near(position, size)
        for width in run:
            length, start = near.numbers(">u4"), position + near.at + _LENGTH_BYTES
            near = near.behind(_LENGTH_BYTES)
            assert length is not None
            if width is None or (length != width).any():
                fields.append(_differing(length.astype(np.int64), start, near))
                break
            fields.append(Field(AS_BINARY, None, start, np.full(len(start), width), near))
            near = near.behind(width)
        position = fields[-1].start + fields[-1].length
    return Walked(fields, position, bad)


def _run(widths: Sequence[int | None]) -> tuple[Sequence[int | None], int]:
    """The first of the columns with these widths, as many as can be gathered together, and in how many bytes."""
    size, count = _HEAD_BYTES, 0
    for width in widths:
        wide = _LENGTH_BYTES + (width or 0)
        if size + wide > SPAN:
            break
        size, count = size + wide, count + 1
        if width is None:
            break
    return widths[:count], size


def _differing(length: Positions, start: Positions, near: Near) -> Field:
    """A column whose values are not of one width in all rows: ``length`` is as it was sent."""
    kinds = None
    null = length == _NULL_LENGTH
    if null.any():
        length[null] = 0
        kinds = np.where(null, np.uint8(NULL), np.uint8(AS_BINARY))
    return Field(AS_BINARY, kinds, start, length, near)
