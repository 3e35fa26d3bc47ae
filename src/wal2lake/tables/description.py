"""What the catalog says of a table beside its rows, on its way into the lake: as metadata of the schema that lands.

Of a column: its type as PostgreSQL has it (``postgres.type``), an enum's labels in order (``postgres.labels``, JSON),
its place in the key from 1 on (``postgres.key``) and its comment (``comment``, which Spark shows); of the table its
comment. A column takes no NULL where its key does not, and its lake type has a place for every value, so that no policy
makes one.

It is what the catalog said when the table was read: a comment that changes later comes with the next read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wal2lake.sinks.base import COMMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wal2lake.postgres.catalog import CatalogColumn, PublishedTable

TYPE: Final = "postgres.type"
LABELS: Final = "postgres.labels"
KEY: Final = "postgres.key"


def described(schema: pa.Schema, table: PublishedTable, key: Sequence[str]) -> pa.Schema:
    """``schema`` with what the catalog says; ``key``: what names a row of a mirror, () where nothing does."""
    columns = {column.name: column for column in table.columns}
    fields = [
        field.with_metadata(_of_column(columns[field.name], key)).with_nullable(
            field.name not in key or not _takes_all(field.type)
        )
        if field.name in columns
        else field
        for field in schema
    ]
    return pa.schema(fields, metadata={COMMENT: table.comment})


def _of_column(column: CatalogColumn, key: Sequence[str]) -> dict[str, str]:
    whole = all(kind.kind != "composite" for kind in column.types)  # whose labels are an attribute's
    labels = next((kind.labels for kind in column.types if kind.labels), ()) if whole else ()
    found = {TYPE: column.type_name, LABELS: json.dumps(labels, ensure_ascii=False) if labels else ""}
    place = str(key.index(column.name) + 1) if column.name in key else ""
    return {name: text for name, text in {**found, KEY: place, COMMENT: column.comment}.items() if text}


def _takes_all(kind: pa.DataType) -> bool:
    """Neither infinity nor NaN of a type with such values is missing in it."""
    tests = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean, pa.types.is_floating)
    return any(is_one(kind) for is_one in tests)
