"""A file as Iceberg's manifests have it: counts and bounds by column id, which readers prune by.

Source: Iceberg, "Table Spec", "Manifests", "Appendix D: Single-value serialization".
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType

from wal2lake.sinks.base import Bound, FileAction


def data_file(action: FileAction, path: str, schema: Schema, columns: pa.Schema, spec_id: int) -> DataFile:
    """The file at ``path``, of an unpartitioned table; ``columns``: the schema's as Arrow has them."""
    ids = {field.name: field.field_id for field in schema.fields}
    kinds = {field.name: field.type for field in columns}
    nulls = {name: number for name, number in action.nulls.items() if name in ids}
    bounded = [name for name in action.low if name in ids]
    made = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=action.rows,
        file_size_in_bytes=action.size,
        column_sizes=None,
        value_counts={ids[name]: action.rows for name in nulls},
        null_value_counts={ids[name]: number for name, number in nulls.items()},
        nan_value_counts=None,
        lower_bounds={ids[name]: _bytes(kinds[name], action.low[name]) for name in bounded},
        upper_bounds={ids[name]: _bytes(kinds[name], action.high[name]) for name in bounded},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec_id
    return made


def _bytes(kind: pa.DataType, value: Bound) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if pa.types.is_decimal(kind):
        return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    return value.to_bytes(kind.bit_width // 8, "little", signed=True)


def bounds(files: Sequence[DataFile], field: NestedField, kind: pa.DataType) -> tuple[pa.Array, pa.Array] | None:
    """What no value of the column is below, and above, in each of the files (NULL: unknown); None for a type that has
    no such order here."""
    bounded = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)
    if not any(is_one(kind) for is_one in bounded) or not isinstance(field.field_type, PrimitiveType):
        return None
    low = [_value(field, (file.lower_bounds or {}).get(field.field_id)) for file in files]
    high = [_value(field, (file.upper_bounds or {}).get(field.field_id)) for file in files]
    if pa.types.is_string(kind):
        return pa.array(low, kind), pa.array(high, kind)
    number = pa.int64() if kind.bit_width == 64 else pa.int32()
    return pa.array(low, number).cast(kind), pa.array(high, number).cast(kind)


def _value(field: NestedField, bound: bytes | None) -> Bound | None:
    assert isinstance(field.field_type, PrimitiveType)
    found = None if bound is None else from_bytes(field.field_type, bound)
    return found if isinstance(found, int | str) else None
