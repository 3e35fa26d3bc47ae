"""The files of a Delta table as delta-rs tells of them, and is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from wal2lake.sinks.base import FileAction
from wal2lake.sinks.delta_statistics import statistics_json


def files_of(table: DeltaTable) -> pa.Table:
    """Those of its version, with what the log says of each."""
    return pa.table(table.get_add_actions(flatten=False))


def add_action(action: FileAction, schema: pa.Schema, changed: bool = True) -> AddAction:
    """The action by which the file comes; ``changed``: the table has other rows then."""
    stats = statistics_json(action, schema)
    return AddAction(action.path, action.size, {}, action.modification_time, changed, stats)


def with_values(batch: pa.RecordBatch, values: dict[int, pa.Scalar]) -> pa.RecordBatch:
    """The batch with one value in all rows of these columns, by their places."""
    values_of: list[Any] = list(batch.columns)
    for place, value in values.items():
        values_of[place] = pa.repeat(value, batch.num_rows)
    return pa.RecordBatch.from_arrays(values_of, schema=batch.schema)
