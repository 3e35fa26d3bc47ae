"""Rows that moved between the chunks of two snapshots: what the target cannot say is asked of the source again.

A row may have left a chunk that was not read yet for one that was read before. Its update is in the log, but a
TOASTed value that stayed the same is not, and the target has no row to take it from. Then the row is read again by
its key. If it is gone there, the change is passed over: what made it go comes later in the log. If it has changed
since, later changes in the log say so. So the table converges, and is exact from the LSN that bounds what was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wal2lake.apply.fold import Folded
from wal2lake.apply.row_index import RowIndex
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import ColumnType
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.live_tables import rows_by_key
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.tables.chunks import columns_as_read, table_schema
from wal2lake.tables.evolve import SourceRelation
from wal2lake.tables.failures import reading_table
from wal2lake.tables.target import Target

Mask = npt.NDArray[np.bool_]
_TEXTLESS = frozenset(
    ("time", "timetz", "money", "composite", "range", "multirange", "hstore", "vector", "halfvec", "geometry")
)


def orphans(folded: Folded, holds: Callable[[pa.Table], Mask]) -> Mask:
    """bool[upserts]: rows that take values from a target row that is not there; ``holds`` tells of keys if it is."""
    masked = np.logical_or.reduce([np.zeros(folded.upserts.num_rows, np.bool_), *folded.unknown.values()])
    if masked.any() and not folded.truncated:
        masked[masked] = ~holds(folded.source_key.filter(pa.array(masked)))
    found: Mask = masked
    return found


def complete(folded: Folded, orphaned: Mask, rows: pa.Table) -> Folded:
    """Fill the orphans' unknown values from ``rows`` (the table's columns, as read again); drop those not in it.

    A column that is gone by then stays NULL.
    """
    key = list(folded.key)
    at = np.full(folded.upserts.num_rows, -1)
    wanted = np.flatnonzero(orphaned)
    if rows.num_rows:
        index = RowIndex(rows.select(key))
        found = index.find(folded.upserts.select(key).take(wanted))
        at[wanted] = np.where(found >= 0, index.representatives()[found], -1)
    upserts, unknown = folded.upserts, {}
    for name, mask in folded.unknown.items():
        unknown[name] = mask & ~orphaned
        if name not in rows.column_names:
            continue
        again = pa.array(at, mask=~(mask & (at >= 0)))
        value = pc.if_else(again.is_valid(), rows[name].take(again), upserts[name])
        upserts = upserts.set_column(upserts.schema.get_field_index(name), upserts.schema.field(name), value)
    return _drop_upserts(replace(folded, upserts=upserts, unknown=unknown), orphaned & (at < 0))


def _drop_upserts(folded: Folded, gone: Mask) -> Folded:
    """Pass over upserts whose row is gone; what the target has under their keys goes as well."""
    keep = pa.array(~gone)
    keys = folded.upserts.select(list(folded.key)).filter(pa.array(gone))
    return replace(
        folded,
        upserts=folded.upserts.filter(keep),
        deletes=pa.concat_tables([folded.deletes, keys]),
        unknown={name: mask[~gone] for name, mask in folded.unknown.items() if mask[~gone].any()},
        source_key=folded.source_key.filter(keep),
    )


def read_again(keys: pa.Table, source: SourceRelation, target: Target) -> tuple[pa.Table, LSN]:
    """The rows of the source that have these keys now, and the LSN from which on the log alone says what they hold.

    None when the table is not published any more. Raises LockedError when somebody's lock is in the way.
    """
    with catalog_session(source.dsn) as connection:
        published = published_tables(connection, source.publication)
        table = next((table for table in published if table.relation_id == source.relation_id), None)
        if table is None:
            return keys.slice(0, 0), LSN(0)
        table = replace(table, columns=columns_as_read(table, target.text_columns, target.types))
        with reading_table(table):
            rows, bound = rows_by_key(connection, table, key_texts(keys))
    schema = table_schema(table, target.types)
    if not rows:
        return schema.arrow_schema.empty_table(), bound
    arrays = decode_copy_rows(rows, schema.columns, schema.qualified_name, unrepresentable=target.unrepresentable)
    return pa.table(arrays, schema=schema.arrow_schema), bound


def has_key_text(kind: ColumnType) -> bool:
    """Whether ``key_texts`` can print a value of that type."""
    return kind.codec not in _TEXTLESS and (kind.element is None or has_key_text(kind.element))


def key_texts(keys: pa.Table) -> list[dict[str, str]]:
    """Each key as PostgreSQL's input text per column."""
    columns = {name: list(map(_key_text, keys[name].to_pylist())) for name in keys.column_names}
    return [{name: texts[row] for name, texts in columns.items()} for row in range(keys.num_rows)]


def _key_text(value: Any) -> str:
    """In an array everything may stand in quotes but NULL and the arrays that it is made of."""
    if isinstance(value, dict):  # an interval
        return " ".join(f"{part} {unit}" for unit, part in value.items())
    if isinstance(value, list):
        return "{" + ",".join(map(_element_text, value)) + "}"
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def _element_text(value: Any) -> str:
    if value is None or isinstance(value, list):
        return "NULL" if value is None else _key_text(value)
    return '"' + re.sub(r'(["\\])', r"\\\1", _key_text(value)) + '"'
