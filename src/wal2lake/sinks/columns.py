"""A target's columns, whatever its format: what is said of it, and how they may follow the source's."""

from __future__ import annotations

import pyarrow as pa

from wal2lake.apply.unify import Fill, widens
from wal2lake.errors import RESYNC, SchemaChangeError
from wal2lake.sinks.base import COMMENT, TargetError


def comment(schema: pa.Schema) -> str:
    """What the schema says of the table as a whole."""
    found: bytes = (schema.metadata or {}).get(COMMENT.encode(), b"")
    return found.decode()


def evolved(have: pa.Schema, want: pa.Schema) -> pa.Schema:
    """``have`` with the columns that ``want`` has wider or more."""
    for field in want:
        place = have.get_field_index(field.name)
        if place < 0:
            have = have.append(field)
        elif widens(have.types[place], field.type):
            have = have.set(place, field)
        elif have.types[place] != field.type and not widens(field.type, have.types[place]):
            raise SchemaChangeError(
                f"The column's type changed from {have.types[place]} to {field.type}.",
                hint=RESYNC,
                column=field.name,
            )
    return have


def with_values(batch: pa.RecordBatch, values: Fill) -> pa.RecordBatch:
    """The batch with these values in these of its columns, in each row."""
    columns = [
        pa.repeat(values[field.name].cast(field.type), batch.num_rows) if field.name in values else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def refuse_case_twins(schema: pa.Schema) -> None:
    folded = [name.lower() for name in schema.names]
    twins = [name for name in schema.names if folded.count(name.lower()) > 1]
    if twins:
        raise TargetError(
            f"Columns {', '.join(twins)} differ in case only, which readers of a lake cannot tell apart.",
            hint="Rename one, or leave it out of the publication's column list.",
            column=twins[0],
        )
