"""Changes of several schema versions become one run of events in the newest version's columns, of the widest type each.

PostgreSQL sends nothing for the rows that ALTER TABLE … ADD COLUMN … DEFAULT fills, so every earlier event of the
run takes the fill value (pg_attribute.attmissingval, else NULL) for a column that its version does not have.
A TRUNCATE forgets everything before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2lake.apply.row_index import Ids, Mask
from wal2lake.columnar import headers
from wal2lake.errors import RESYNC, ProtocolError, SchemaChangeError

if TYPE_CHECKING:
    from wal2lake.columnar.changes import Changes
    from wal2lake.columnar.types import TableSchema

INSERT, UPDATE, DELETE, TRUNCATE = map(np.uint8, (headers.INSERT, headers.UPDATE, headers.DELETE, headers.TRUNCATE))
OLD: Final = np.uint8(headers.OLD)
Fill = Mapping[str, pa.Scalar]

_WIDER: Final = (
    (pa.int16(), pa.int32()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
)


@dataclass(frozen=True)
class Events:
    """N inserts, updates and deletes in stream order, all after the last TRUNCATE (``truncated``: there was one).

    ``new`` and ``old`` have N rows, NULL where there is no such tuple; ``old`` holds the columns that were asked for.
    ``unknown`` has a bool[N] for each column of which some value is unchanged TOAST.
    """

    relation: str
    truncated: bool
    kind: npt.NDArray[np.uint8]
    old_kind: npt.NDArray[np.uint8]
    lsn: npt.NDArray[np.uint64]
    new: pa.Table
    old: pa.Table
    unknown: dict[str, Mask]

    @property
    def upserts(self) -> Mask:
        """bool[N]: the event leaves a row behind."""
        mask: Mask = self.kind != DELETE
        return mask

    def fail(self, message: str, rows: Ids, hint: str | None = None) -> ProtocolError:
        """An error that names the relation and the first offending event's LSN."""
        return ProtocolError(message, hint=hint, relation=self.relation, lsn=int(self.lsn[rows[0]]))


def unify(
    changes: Sequence[Changes],
    fill: Fill | None = None,
    old: Sequence[str] | None = None,
    versions: Sequence[TableSchema] = (),
) -> Events:
    """Lay one or more Changes of one relation, oldest first, end to end; ``old`` names the old tuple's columns wanted.

    ``versions``: all that there are, where the changes are a part of more. Raises SchemaChangeError when a column's
    type changed by more than a widening.
    """
    schema = _widest(versions or [part.schema for part in changes])
    wanted = pa.schema([schema.field(name) for name in schema.names if old is None or name in old])
    kind = np.concatenate([c.kind for c in changes])
    truncates = np.flatnonzero(kind == TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    return Events(
        relation=changes[-1].schema.qualified_name,
        truncated=len(truncates) > 0,
        kind=kind[start:],
        old_kind=np.concatenate([c.old_kind for c in changes])[start:],
        lsn=np.concatenate([c.lsn for c in changes])[start:],
        new=pa.concat_tables([_table(c, c.new, schema, fill or {}) for c in changes]).slice(start),
        old=pa.concat_tables([_table(c, c.old, wanted, fill or {}) for c in changes]).slice(start),
        unknown=_unknown(changes, schema, start),
    )


def _widest(versions: Sequence[TableSchema]) -> pa.Schema:
    """The newest version's columns. A column that became narrower had wider values, and a target stays as wide."""
    schema = versions[-1].arrow_schema
    for version in {one.digest: one.arrow_schema for one in versions}.values():
        for place, field in enumerate(schema):
            own = version.get_field_index(field.name)
            if own >= 0 and widens(field.type, version.types[own]):
                schema = schema.set(place, version.field(own))
    return schema


def _table(changes: Changes, columns: list[pa.Array] | None, schema: pa.Schema, fill: Fill) -> pa.Table:
    """One version's tuples in ``schema``; no tuples at all are NULLs."""
    size = len(changes.kind)
    if columns is None:
        return pa.table([pa.nulls(size, field.type) for field in schema], schema=schema)
    own = {column.name: i for i, column in enumerate(changes.schema.columns)}
    return pa.table(
        [
            _widened(columns[own[field.name]], field, changes)
            if field.name in own
            else pa.repeat(fill.get(field.name, pa.scalar(None, field.type)), size).cast(field.type)
            for field in schema
        ],
        schema=schema,
    )


def _widened(column: pa.Array, field: pa.Field, changes: Changes) -> pa.Array:
    """A version's column in the type of the newest; raise SchemaChangeError where that is no widening."""
    if column.type == field.type:
        return column
    if not widens(column.type, field.type):
        raise SchemaChangeError(
            f"The column's type changed from {column.type} to {field.type} and no rule says what its values become.",
            hint=RESYNC,
            relation=changes.schema.qualified_name,
            column=field.name,
        )
    return column.cast(field.type)


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of ``narrow`` is the same value in ``wide``, for PostgreSQL as for Arrow."""
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        digits = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return bool(digits and wide.scale == narrow.scale)  # 1.0 and 1.00 differ in PostgreSQL's text
    return (narrow, wide) in _WIDER


def _unknown(changes: Sequence[Changes], schema: pa.Schema, start: int) -> dict[str, Mask]:
    """bool[events] for each column of which some value is unchanged TOAST; a version without the column has none."""
    found = {}
    for name in schema.names:
        masks = []
        for part in changes:
            own = part.schema.arrow_schema.get_field_index(name)
            mask = part.unchanged[own] if own >= 0 else None
            masks.append(np.zeros(len(part.kind), np.bool_) if mask is None else mask)
        mask = np.concatenate(masks)[start:]
        if mask.any():
            found[name] = mask
    return found
