"""Changes and snapshots by hand, from events that read like the stream; and the dict that they must end in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from wal2lake.columnar.changes import Changes
from wal2lake.columnar.types import TableSchema

INT8, INT4, FLOAT8 = (20, -1), (23, -1), (701, -1)
TEXT, TIMESTAMP = (25, -1), (1114, -1)


class Unchanged:
    """Unchanged TOAST in a new tuple."""

    def __repr__(self) -> str:
        return "U"


U = Unchanged()
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """``kind`` I, U, D or T; ``new`` a whole row (U where unchanged), ``old`` a whole row with None where not sent."""

    kind: str
    new: Row | None = None
    old: Row | None = None
    old_kind: str = "K"


def table(columns: dict[str, tuple[int, int]], key: Sequence[str], identity: str = "d") -> TableSchema:
    described = [(name, oid, typmod, None, name in key or identity == "f") for name, (oid, typmod) in columns.items()]
    return TableSchema.build(7, "shop", "item", described, identity)


def changes(schema: TableSchema, events: Sequence[Event], lsn: int = 100, xid: Sequence[int] | None = None) -> Changes:
    size = len(events)
    old = None
    if any(e.old is not None for e in events):
        old = [_column(schema, i, [e.old for e in events]) for i in range(len(schema.columns))]
    return Changes(
        schema=schema,
        kind=np.array([ord(e.kind) for e in events], np.uint8),
        row=np.arange(size),
        lsn=np.arange(lsn, lsn + size, dtype=np.uint64),
        xid=np.array([7] * size if xid is None else xid, np.uint32),
        new=[_column(schema, i, [e.new for e in events]) for i in range(len(schema.columns))],
        unchanged=[_mask(i, events) for i in range(len(schema.columns))],
        old_kind=np.array([0 if e.old is None else ord(e.old_kind) for e in events], np.uint8),
        old=old,
    )


def _column(schema: TableSchema, i: int, rows: Sequence[Row | None]) -> pa.Array:
    values = [None if row is None or row[i] is U else row[i] for row in rows]
    return pa.array(values, schema.columns[i].type.arrow)


def _mask(i: int, events: Sequence[Event]) -> np.ndarray[Any, Any] | None:
    mask = np.array([e.new is not None and e.new[i] is U for e in events], np.bool_)
    return mask if mask.any() else None
