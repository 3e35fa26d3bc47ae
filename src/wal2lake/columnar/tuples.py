"""TupleData a column at a time: one position per row walks over all rows' tuples together, then columns are decoded.

Lengths are taken as unsigned, so positions only grow, and a tuple that ends where it must has read nothing outside
itself: one comparison after the last column checks every length before it. Nothing is decoded before that.

Source: PostgreSQL documentation, "Logical Replication Message Formats", TupleData; proto.c, logicalrep_write_tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from wal2lake.columnar.buffer import Bytes, Mask, MessageBatch, Near, Positions
from wal2lake.columnar.cells import CellFault, Cells, Decoder, Policy, ShapeError
from wal2lake.columnar.decoders import binary_decoder, text_decoder
from wal2lake.columnar.text import NULL_AWARE
from wal2lake.columnar.types import ColumnType, TableColumn
from wal2lake.errors import RESYNC, SchemaChangeError, UnrepresentableError

NULL, UNCHANGED, AS_TEXT, AS_BINARY = b"nutb"
_NO_PLACE_CURE: Final = (
    "Name the column in pipeline.null_columns, or set pipeline.unrepresentable to null, and start `wal2lake run` again:"
    " it tries the table again, and the value is NULL. Or name it in pipeline.text_columns, start again, and call"
    " `wal2lake resync` with the table's name: the column is text."
)
_NO_LIST_CURE: Final = f"{RESYNC} Its column lands as PostgreSQL's text from then on."
Formats = Mapping[int, Callable[[ColumnType], Decoder]]
_FORMATS: Final[Formats] = {AS_TEXT: text_decoder, AS_BINARY: binary_decoder}


@dataclass(frozen=True, slots=True)
class Field:
    """One column of N tuples: ``kinds`` 'n', 'u', 't' or 'b' per row, or one ``kind`` where all are alike. ``near``:
    the bytes from ``start`` on, where they have been gathered."""

    kind: int
    kinds: Bytes | None
    start: Positions
    length: Positions
    near: Near | None = None

    def where(self, kind: int) -> Mask | None:
        """The rows of that kind, None if there are none."""
        if self.kinds is None:
            return np.ones(len(self.start), bool) if self.kind == kind and len(self.start) else None
        mask = self.kinds == kind
        return mask if mask.any() else None


@dataclass(frozen=True, slots=True)
class Walked:
    """N tuples taken apart but not yet proven: ``end`` is where each ends, ``bad`` where a kind or count is wrong."""

    fields: list[Field]
    end: Positions
    bad: Mask


@dataclass(frozen=True, slots=True)
class TupleColumns:
    """Columns of N tuples: ``arrays`` (NULL where 'n' or 'u'), ``unchanged`` masks (None: no 'u'), their ``end``."""

    arrays: list[pa.Array]
    unchanged: list[Mask | None]
    end: Positions


def decode_tuples(
    messages: MessageBatch, start: Positions, columns: Sequence[TableColumn], unrepresentable: Policy = "error"
) -> TupleColumns:
    """Decode the TupleData (its Int16 column count at ``start`` of the source) with which each message ends.

    Raises PgoutputDecodeError, and UnrepresentableError unless the policy is "null".
    """
    walked = walk(messages, start, len(columns))
    refuse(messages, start, walked.bad | (walked.end != messages.end), len(columns))
    return decode_walked(messages, walked, columns, unrepresentable)


def decode_walked(
    messages: MessageBatch, walked: Walked, columns: Sequence[TableColumn], policy: Policy
) -> TupleColumns:
    """Decode tuples whose ends were checked."""
    pairs = zip(walked.fields, columns, strict=True)
    arrays = [decode_field(messages, field, column, _FORMATS, policy) for field, column in pairs]
    return TupleColumns(arrays, [field.where(UNCHANGED) for field in walked.fields], walked.end)


def walk(messages: MessageBatch, start: Positions, count: int) -> Walked:
    """Find every column of the tuples at ``start``; the caller checks ``end`` and ``bad`` (``refuse``)."""
    source = messages.source
    bad = source.window(start).astype(np.uint16).byteswap() != count
    position, fields = start + 2, []  # int64[rows]: where each row's next column begins
    for _ in range(count):
        kinds, length = source.byte(position), source.lengths(position, 1)  # uint8[rows], int64[rows]
        kind = int(kinds[0]) if len(kinds) else NULL
        if kind in _FORMATS and bool((kinds == kind).all()):
            field = Field(kind, None, position + 5, length)
        else:
            # kinds differ: 'n' and 'u' are one byte, the others have an Int32 length and so many bytes behind it
            sized = (kinds == AS_TEXT) | (kinds == AS_BINARY)
            bad |= ~(sized | (kinds == NULL) | (kinds == UNCHANGED))
            field = Field(NULL, kinds, position + 1 + 4 * sized, length * sized)
        position = field.start + field.length
        fields.append(field)
    return Walked(fields, position, bad)


def decode_field(
    messages: MessageBatch,
    field: Field,
    column: TableColumn,
    formats: Formats,
    policy: Policy,
) -> pa.Array:
    """One column; where kinds differ, each is decoded by itself and put into its rows."""
    cells = Cells(messages.source, field.start, field.length, column.unrepresentable or policy, near=field.near)
    masks = {kind: mask for kind in formats if (mask := field.where(kind)) is not None}
    decoders = {kind: formats[kind](column.type) for kind in masks}
    if len(masks) == 1:
        ((kind, mask),) = masks.items()
        if field.kinds is None:
            return _decode(messages, cells, None, column, decoders[kind])
        if decoders[kind] in NULL_AWARE:
            return _decode(messages, replace(cells, null=~mask), None, column, decoders[kind])
    # each kind's cells are decoded together, one part behind the other; index[row] is a row's place in all of them
    parts = [pa.nulls(0, column.type.arrow)]
    index, empty = np.zeros(len(cells), np.int64), np.ones(len(cells), bool)
    for kind, mask in masks.items():
        index[mask] = np.arange(np.count_nonzero(mask)) + sum(map(len, parts))
        empty &= ~mask
        parts.append(_decode(messages, cells, np.flatnonzero(mask), column, decoders[kind]))
    return pa.concat_arrays(parts).take(pa.array(index, mask=empty))


def _decode(
    messages: MessageBatch, cells: Cells, rows: Positions | None, column: TableColumn, decoder: Decoder
) -> pa.Array:
    """Decode the cells of ``rows`` (None: all)."""
    try:
        return decoder(cells if rows is None else cells.take(rows), column.type.arrow)
    except CellFault as error:
        fault = error
    as_text = fault.shape or (fault.unrepresentable and cells.unrepresentable == "text" and fault.hint is None)
    row = fault.index if rows is None else int(rows[fault.index])
    if fault.changed:
        lsn = messages.lsn_of(row)
        raise SchemaChangeError(fault.reason, hint=RESYNC, relation=messages.relation, column=column.name, lsn=lsn)
    if fault.unrepresentable:
        raise (ShapeError if as_text else UnrepresentableError)(
            f"{fault.reason} has no place in the lake type {column.type.arrow}.",
            hint=fault.hint or (_NO_LIST_CURE if as_text else _NO_PLACE_CURE),
            relation=messages.relation,
            column=column.name,
            lsn=messages.lsn_of(row),
        )
    reason = f"a value is not of its column's type: {fault.reason}"
    refused = messages.malformed(row, int(cells.start[row]), reason, column.name)
    refused.hint = fault.hint
    raise refused


def refuse(messages: MessageBatch, start: Positions, bad: Mask, count: int) -> None:
    """Raise PgoutputDecodeError for the first row that ``bad`` marks, with the place where its tuple goes wrong."""
    if bad.any():
        row = int(bad.argmax())
        position, reason = _diagnose(messages, row, int(start[row]), count)
        raise messages.malformed(row, position, reason)


def _diagnose(messages: MessageBatch, row: int, position: int, count: int) -> tuple[int, str]:
    """Read one tuple again, byte by byte."""
    end, data = int(messages.end[row]), messages.source.bytes
    if position + 2 > end:
        return position, "it ends inside its tuple"
    found = int.from_bytes(data[position : position + 2].tobytes(), "big")
    if found != count:
        return position, f"its tuple has {found} columns where its Relation has {count}"
    position += 2
    for _ in range(count):
        if position >= end:
            return position, "it ends inside its tuple"
        if data[position] in (NULL, UNCHANGED):
            position += 1
        elif data[position] not in _FORMATS:
            return position, "the kind of a column is none of n, u, t, b"
        elif position + 5 > end:
            return position, "it ends inside its tuple"
        else:
            length = int.from_bytes(data[position + 1 : position + 5].tobytes(), "big")
            if position + 5 + length > end:
                return position, "the length of a value points behind the message's end"
            position += 5 + length
    return position, "its tuple does not end where the message does, or no new tuple follows the old one"
