"""Append mode keeps every change as a row: what happened, where and when, then the table's own columns.

A row of the envelope names one row of the source under one key, so an update that changes the key is two rows: 'D'
of the old key, then 'U' under the new one. ``_unchanged`` lists the columns whose NULL means "unchanged TOAST".

The rows of one key are in order by ``_lsn``, and all rows by ``_commit_lsn``, then ``_lsn``. What a snapshot read comes
first in both: its transactions' LSN is where the log begins, below every other's, but the first change of the log may
stand right there, so its rows have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.apply.row_index import Ids, Mask, RowIndex
from wal2lake.apply.unify import DELETE, UPDATE
from wal2lake.epoch import EPOCH_US
from wal2lake.errors import LogCorruptError, SchemaChangeError

if TYPE_CHECKING:
    from wal2lake.columnar.changes import Changes
    from wal2lake.columnar.types import TableSchema


ENVELOPE: Final = pa.schema(
    [
        ("_op", pa.string()),  # I, U, D, T; R: read by the snapshot
        ("_commit_lsn", pa.int64()),  # end LSN of the transaction, bytes
        ("_lsn", pa.int64()),  # of the change itself; 0: R
        ("_commit_ts", pa.timestamp("us", tz="UTC")),
        ("_xid", pa.int64()),
        ("_unchanged", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Commits:
    """How each of N changes committed: LSN of the commit record, LSN after it, µs since 2000-01-01 UTC."""

    final_lsn: npt.NDArray[np.uint64]
    end_lsn: npt.NDArray[np.uint64]
    commit_ts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, xid: npt.NDArray[np.uint32], transactions: pa.Table) -> Commits:
        """Look the changes' transactions up in the change log's index rows of the same range.

        Raises LogCorruptError when one is missing.
        """
        place = pc.index_in(pa.array(xid), value_set=transactions["xid"].combine_chunks())
        if place.null_count:
            raise LogCorruptError(
                "A change in the log belongs to no transaction of the log's index.",
                hint="Run `wal2lake log verify`; if it fails too, take the snapshot anew.",
            )
        at = place.to_numpy()
        return cls(*(transactions[name].to_numpy()[at] for name in ("final_lsn", "end_lsn", "commit_ts")))


def envelope_schema(schema: TableSchema) -> pa.Schema:
    """The envelope's columns, then the table's; raises SchemaChangeError when the table uses one of their names."""
    taken = sorted(set(ENVELOPE.names) & set(schema.arrow_schema.names))
    if taken:
        raise SchemaChangeError(
            "Append mode has a column of this name of its own.",
            hint="Rename the table's column, leave it out of the publication's column list, or use mode mirror.",
            relation=schema.qualified_name,
            column=taken[0],
        )
    return pa.schema([*ENVELOPE, *schema.arrow_schema])


def envelope(changes: Changes, commits: Commits, key: Sequence[str]) -> pa.Table:
    """One row per change (two where the key changed, the whole row being the key when ``key`` is empty), in order."""
    schema = envelope_schema(changes.schema)
    event, gone = _expand(_moved(changes, key))
    gone |= changes.kind[event] == DELETE
    op = np.where(gone, DELETE, changes.kind[event])
    head = [
        pa.array(["I", "U", "D", "T"]).take(pc.index_in(pa.array(op), value_set=pa.array([*b"IUDT"], pa.uint8()))),
        pa.array(commits.end_lsn[event].astype(np.int64)),
        pa.array(changes.lsn[event].astype(np.int64)),
        pa.array(commits.commit_ts[event] + EPOCH_US).cast(schema.field("_commit_ts").type),
        pa.array(changes.xid[event].astype(np.int64)),
        _unchanged(changes, event, gone),
    ]
    return pa.table(head + _tuples(changes, event, gone), schema=schema)


def snapshot_envelope(rows: pa.Table, schema: TableSchema, lsn: int) -> pa.Table:
    """Rows that the snapshot read, as 'R' rows; they have no transaction, and ``lsn`` is below that of any."""
    shape = envelope_schema(schema)
    head = {"_op": pa.scalar("R"), "_commit_lsn": pa.scalar(int(lsn)), "_lsn": pa.scalar(0)}
    head["_unchanged"] = pa.scalar([], shape.field("_unchanged").type)
    columns = [
        pa.repeat(head.get(field.name, pa.scalar(None, field.type)), rows.num_rows).cast(field.type)
        for field in ENVELOPE
    ]
    return pa.table(columns + rows.columns, schema=shape)


def _moved(changes: Changes, key: Sequence[str]) -> Mask:
    """bool[N]: updates whose old tuple has another key than the new one."""
    both = np.flatnonzero((changes.kind == UPDATE) & (changes.old_kind != 0))
    moved = np.zeros(len(changes.kind), np.bool_)
    if len(both) and changes.old is not None:
        names = [c.name for c in changes.schema.columns]
        at = [names.index(name) for name in key] or list(range(len(names)))
        rows, new, old = pa.array(both), {}, {}
        for i in at:
            before, after, mask = changes.old[i], changes.new[i], changes.unchanged[i]
            after = after if mask is None else pc.if_else(pa.array(mask), before, after)  # unchanged TOAST is the same
            new[str(i)], old[str(i)] = after.take(rows), before.take(rows)
        ids = RowIndex(pa.concat_tables([pa.table(new), pa.table(old)])).ids  # the new keys' ids, then the old ones'
        moved[both] = ids[: len(both)] != ids[len(both) :]
    return moved


def _expand(moved: Mask) -> tuple[Ids, Mask]:
    """Each event's index, twice where it moved; and which of these rows stand for the old key."""
    event = np.repeat(np.arange(len(moved)), 1 + moved)
    first = np.append(True, event[1:] != event[:-1])[: len(event)]  # bool[rows]: not the second row of its event
    return event, moved[event] & first


def _tuples(changes: Changes, event: Ids, gone: Mask) -> list[pa.Array]:
    """The table's columns: of the old tuple for rows that are gone, else of the new one."""
    new, old, is_old = changes.new, changes.old, pa.array(gone)
    if len(event) > len(changes.kind):
        places = pa.array(event)
        new, old = ([column.take(places) for column in columns] for columns in (new, old or ()))
    if not old or not gone.any():
        return list(new)
    return [pc.if_else(is_old, o, n) for o, n in zip(old, new, strict=True)]


def _unchanged(changes: Changes, event: Ids, gone: Mask) -> pa.ListArray:
    """list[rows] of the names of the columns whose TOASTed value did not change; empty for a row that is gone."""
    masked = [(c.name, m) for c, m in zip(changes.schema.columns, changes.unchanged, strict=True) if m is not None]
    if not masked:
        return pa.ListArray.from_arrays(np.zeros(len(event) + 1, np.int32), pa.array([], pa.string()))
    # bool[rows, masked columns]; nonzero goes through it row by row, which is the list array's own order
    stands = np.column_stack([mask for _, mask in masked])[event] & ~gone[:, None]
    offsets = np.append(0, np.cumsum(stands.sum(axis=1))).astype(np.int32)
    names = pa.array([name for name, _ in masked]).take(pa.array(np.nonzero(stands)[1]))
    return pa.ListArray.from_arrays(offsets, names)
