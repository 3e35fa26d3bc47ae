"""The changes of one relation in a batch of log rows, as columns: rows in order, whatever their kind.

All new tuples are decoded together and all old tuples together, so a batch of inserts is decoded with nothing moved
afterwards. NULL, unchanged TOAST and "no tuple" stay apart: ``unchanged`` marks the second, ``kind`` and ``old_kind``
tell the third.

Source: PostgreSQL documentation, "Logical Replication Message Formats": Insert, Update, Delete, Truncate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.columnar.buffer import Bytes, Mask, MessageBatch, Positions, blocks
from wal2lake.columnar.cells import Policy
from wal2lake.columnar.headers import DELETE, INSERT, KEY, NEW, OLD, TRUNCATE, TRUNCATE_IDS_AT, TUPLE_AT, UPDATE
from wal2lake.columnar.tuples import TupleColumns, decode_tuples, decode_walked, refuse, walk
from wal2lake.columnar.types import TableSchema


@dataclass(frozen=True)
class Changes:
    """N changes of one relation, in the log's order.

    ``kind``: ord of 'I', 'U', 'D', 'T'. ``row``: the row in the batch. ``new``: per column an array of N, NULL where
    the value is NULL, unchanged or there is no new tuple. ``unchanged``: per column where TOAST is unchanged and
    unknown (None: nowhere). ``old_kind``: 0, ord 'K' (key columns only) or 'O' (whole row). ``old``: as ``new``, None
    if no change has an old tuple.
    """

    schema: TableSchema
    kind: Bytes
    row: Positions
    lsn: npt.NDArray[np.uint64]
    xid: npt.NDArray[np.uint32]
    new: list[pa.Array]
    unchanged: list[Mask | None]
    old_kind: Bytes
    old: list[pa.Array] | None

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def nbytes(self) -> int:
        """Bytes of the tuples' values."""
        return sum(int(column.nbytes) for column in [*self.new, *(self.old or ())])

    @classmethod
    def concat(cls, parts: Sequence[Changes]) -> Changes:
        """Consecutive parts (at least one, of one schema) as one."""
        if len(parts) == 1:
            return parts[0]
        schema, columns = parts[0].schema, range(len(parts[0].schema.columns))
        old = None
        if any(part.old is not None for part in parts):
            olds = [part.old or [pa.nulls(len(part), column.type) for column in part.new] for part in parts]
            old = [pa.concat_arrays([part_old[place] for part_old in olds]) for place in columns]
        return cls(
            schema,
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.lsn for part in parts]),
            np.concatenate([part.xid for part in parts]),
            [pa.concat_arrays([part.new[place] for part in parts]) for place in columns],
            [_concat_masks([(part.unchanged[place], len(part)) for part in parts]) for place in columns],
            np.concatenate([part.old_kind for part in parts]),
            old,
        )


def _concat_masks(masks: Sequence[tuple[Mask | None, int]]) -> Mask | None:
    if all(mask is None for mask, _ in masks):
        return None
    return np.concatenate([np.zeros(count, bool) if mask is None else mask for mask, count in masks])


def decode_changes(
    batch: pa.RecordBatch,
    schema: TableSchema,
    rows: tuple[int, int] | None = None,
    *,
    unrepresentable: Policy = "error",
) -> Changes:
    """Decode what a batch of log rows (lsn, tag, relation_id, xid, payload) holds of ``schema``'s relation.

    ``rows`` (first, after the last) limits it to those for which ``schema`` is valid. Raises PgoutputDecodeError, or
    UnrepresentableError unless the policy is "null". ``iter_changes`` spares the copy into one.
    """
    return Changes.concat(list(iter_changes(batch, schema, rows, unrepresentable=unrepresentable)))


def iter_changes(
    batch: pa.RecordBatch,
    schema: TableSchema,
    rows: tuple[int, int] | None = None,
    *,
    unrepresentable: Policy = "error",
) -> Iterator[Changes]:
    """The same in parts of at most BLOCK_ROWS, the size at which decoding is fastest; at least one, maybe empty."""
    first, after = rows or (0, batch.num_rows)
    batch = batch.slice(first, after - first)
    row, tag = _select(batch, schema.relation_id, schema.qualified_name)
    lsn, xid, payload = _numpy(batch, "lsn"), _numpy(batch, "xid"), batch.column("payload")
    for part in blocks(payload, row):
        mine = row[part]
        messages = MessageBatch.of(payload, schema.qualified_name, mine, lsn[mine])
        yield _decode(messages, tag[part], mine + first, xid[mine], schema, unrepresentable)


def _decode(
    messages: MessageBatch,
    tag: Bytes,
    row: Positions,
    xid: npt.NDArray[np.uint32],
    schema: TableSchema,
    policy: Policy,
) -> Changes:
    old_kind = _check_heads(messages, tag, schema.relation_id)
    start = messages.start + TUPLE_AT  # int64[changes]: of the first tuple, then of the new one
    old = _old_tuples(messages, start, tag, old_kind, schema, policy)
    new = _new_tuples(messages, start, tag, schema, policy)
    if old is not None:
        _fill_unchanged(new, old, old_kind == OLD)
    assert messages.lsn is not None
    old_arrays = None if old is None else old.arrays
    return Changes(schema, tag, row, messages.lsn, xid, new.arrays, new.unchanged, old_kind, old_arrays)


def _numpy(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    column: npt.NDArray[Any] = batch.column(name).to_numpy()
    return column


def _select(batch: pa.RecordBatch, relation_id: int, relation: str) -> tuple[Positions, Bytes]:
    """The rows that are changes of the relation, and their tags."""
    tag = _numpy(batch, "tag")
    mask = (tag == INSERT) | (tag == UPDATE) | (tag == DELETE)
    mask &= _numpy(batch, "relation_id") == relation_id
    truncates = np.flatnonzero(tag == TRUNCATE)
    if len(truncates):
        messages = MessageBatch.of(batch.column("payload"), relation, truncates, _numpy(batch, "lsn")[truncates])
        mask[truncates] = _truncates(messages, relation_id)
    row = np.flatnonzero(mask)
    return row, tag[row].astype(np.uint8)


def _truncates(messages: MessageBatch, relation_id: int) -> Mask:
    """bool[messages]: which of these Truncate messages name the relation."""
    # Int32 behind the tag: how many ids follow
    count = messages.source.window(messages.start + 1).astype(np.uint32).byteswap().astype(np.int64)
    bad = messages.end - messages.start != TRUNCATE_IDS_AT + 4 * count
    if bad.any():
        row = int(bad.argmax())
        raise messages.malformed(row, int(messages.start[row]) + 1, "its number of relations does not fit its length")
    # all ids of all messages in one array of sum(count): which message each is of, and its place in it
    first = np.cumsum(count) - count
    place = np.arange(count.sum()) - np.repeat(first, count)
    ids = messages.source.window(np.repeat(messages.start + TRUNCATE_IDS_AT, count) + 4 * place)
    named = ids.astype(np.uint32).byteswap() == relation_id
    owner = np.repeat(np.arange(len(messages)), count)
    return np.bincount(owner[named], minlength=len(messages)) > 0


def _check_heads(messages: MessageBatch, tag: Bytes, relation_id: int) -> Bytes:
    """Check tag, relation id and kind of the first tuple in the payloads; return 'K', 'O' or 0 for each."""
    head = messages.source.window(messages.start)  # uint64[changes], low byte first: tag, relation id (4), kind
    tag_and_id = tag | np.uint64(int.from_bytes(relation_id.to_bytes(4, "big"), "little") << 8)
    kind = (head >> 40).astype(np.uint8)
    has_old = (kind == KEY) | (kind == OLD)
    fits = np.where(tag == INSERT, kind == NEW, has_old | ((tag == UPDATE) & (kind == NEW)))
    bad = (((head & 0xFFFFFFFFFF) != tag_and_id) | ~fits) & (tag != TRUNCATE)
    if bad.any():
        row = int(bad.argmax())
        raise messages.malformed(row, int(messages.start[row]), "its tag, relation or kind of tuple is wrong")
    old_kind: Bytes = kind * (has_old & (tag != TRUNCATE))
    return old_kind


def _old_tuples(
    messages: MessageBatch, start: Positions, tag: Bytes, old_kind: Bytes, schema: TableSchema, policy: Policy
) -> TupleColumns | None:
    """The old tuples, one per message; moves ``start`` to the new tuple behind the old one of an Update."""
    rows = np.flatnonzero(old_kind)
    if not len(rows):
        return None
    subset, begin, count = messages.take(rows), start[rows], len(schema.columns)
    walked = walk(subset, begin, count)
    followed = (walked.end < subset.end) & (messages.source.byte(walked.end) == NEW)
    whole = np.where(tag[rows] == UPDATE, followed, walked.end == subset.end)
    refuse(subset, begin, walked.bad | ~whole, count)
    # behind the byte 'N'; a Delete has no new tuple, and nobody reads its start again
    start[rows] = walked.end + 1
    return _spread(decode_walked(subset, walked, schema.columns, policy), rows, len(messages))


def _new_tuples(
    messages: MessageBatch, start: Positions, tag: Bytes, schema: TableSchema, policy: Policy
) -> TupleColumns:
    """The new tuples, one per message."""
    rows = np.flatnonzero((tag == INSERT) | (tag == UPDATE))
    if len(rows) == len(messages):
        return decode_tuples(messages, start, schema.columns, policy)
    tuples = decode_tuples(messages.take(rows), start[rows], schema.columns, policy)
    return _spread(tuples, rows, len(messages))


def _spread(tuples: TupleColumns, rows: Positions, count: int) -> TupleColumns:
    """Put the tuples' values into their rows of ``count``; the others have none."""
    if len(rows) == count:
        return tuples
    index, absent = np.zeros(count, np.int64), np.ones(count, bool)  # of each row: its tuple, and whether it has none
    index[rows], absent[rows] = np.arange(len(rows)), False
    take = pa.array(index, mask=absent)
    unchanged = [None if mask is None else mask[index] & ~absent for mask in tuples.unchanged]
    return TupleColumns([array.take(take) for array in tuples.arrays], unchanged, tuples.end)


def _fill_unchanged(new: TupleColumns, old: TupleColumns, whole: Mask) -> None:
    """An unchanged TOAST value stands in the old tuple when that is the whole row (REPLICA IDENTITY FULL)."""
    for place, (unchanged, unknown) in enumerate(zip(new.unchanged, old.unchanged, strict=True)):
        if unchanged is not None:
            # what the old tuple does not say either stays unchanged
            fill = unchanged & whole if unknown is None else unchanged & whole & ~unknown
            new.arrays[place] = pc.if_else(pa.array(fill), old.arrays[place], new.arrays[place])
            left = unchanged & ~fill
            new.unchanged[place] = left if left.any() else None
