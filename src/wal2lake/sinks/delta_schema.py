"""A Delta table's columns: as THE type table names them, and what is said of them."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable


def columns(table: DeltaTable) -> pa.Schema:
    """The table's columns as THE type table names them: nullable, without metadata."""
    return pa.schema([pa.field(field.name, field.type) for field in pa.schema(table.schema().to_arrow())])


def as_said(schema: pa.Schema, table: DeltaTable) -> pa.Schema:
    """``schema`` with what the table says of its columns."""
    own = {field.name: field for field in pa.schema(table.schema().to_arrow())}
    return pa.schema([
        field.with_metadata(own[field.name].metadata).with_nullable(own[field.name].nullable)
        if field.name in own else field
        for field in schema
    ])  # fmt: skip


def has_naive_time(kind: pa.DataType) -> bool:
    """A timestamp without zone, at whatever depth."""
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(kind == pa.timestamp("us")) or any(map(has_naive_time, inner))
