"""Iceberg's columns: a type for each of THE type table's, an id for each for good, and how they follow the source's.

A data file's columns bear these ids, so they are known before the file is written: of a table that is not there yet,
those that making it gives; of one whose columns are about to be exchanged, those that the exchange will give. Both are
what pyiceberg does, tried without a commit.

Iceberg has no integer of 16 bits; it becomes one of 32.

Source: Iceberg, "Table Spec", "Schemas and Data Types", "Schema Evolution", "Column Projection".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from wal2lake.apply.unify import widens
from wal2lake.errors import SchemaChangeError
from wal2lake.sinks.base import COMMENT
from wal2lake.sinks.datafiles import FIELD_ID

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.update.schema import UpdateSchema

_KEY: Final = b"postgres.key"
_PRIMITIVES: Final[tuple[tuple[pa.DataType, PrimitiveType], ...]] = (
    (pa.bool_(), BooleanType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
    (pa.date32(), DateType()),
    (pa.timestamp("us"), TimestampType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
)
_ICEBERG: Final[dict[pa.DataType, IcebergType]] = dict(_PRIMITIVES)
_ARROW: Final = {str(kind): arrow for arrow, kind in _PRIMITIVES}


def lake_type(kind: pa.DataType) -> pa.DataType:
    """The type as Iceberg has it."""
    if pa.types.is_list(kind):
        return pa.list_(lake_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, lake_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(lake_type(kind.key_type), lake_type(kind.item_type))
    return pa.int32() if pa.types.is_int16(kind) else kind


def lake_columns(schema: pa.Schema) -> pa.Schema:
    """The columns in their types there; what is said of them stays."""
    return pa.schema([field.with_type(lake_type(field.type)) for field in schema], schema.metadata)


def as_lake(rows: pa.Table) -> pa.Table:
    """The rows with values of these types."""
    for place, field in enumerate(rows.schema):
        if (kind := lake_type(field.type)) != field.type:
            rows = rows.set_column(place, field.with_type(kind), rows.column(place).cast(kind))
    return rows


def new_schema(schema: pa.Schema) -> Schema:
    """That of a table that is made with these columns. Raises SchemaChangeError for names that Iceberg cannot keep
    apart."""
    ids = count(1)
    fields = [
        NestedField(next(ids), field.name, _type(field.type, ids), required=not field.nullable, doc=_comment(field))
        for field in schema
    ]
    keys = {field.name for field in schema if _is_identifier(field)}
    identifiers = [field.field_id for field in fields if field.name in keys]
    try:
        return assign_fresh_schema_ids(Schema(*fields, identifier_field_ids=identifiers))
    except ValueError:
        message = "A column's name with a dot in it is that of a field of another column, which Iceberg takes for one."
        raise SchemaChangeError(message, hint="Rename it, or leave it out of the publication's column list.") from None


def arrow_columns(schema: Schema) -> pa.Schema:
    """The columns as THE type table names them, with their ids, which stand in the data files. Raises
    SchemaChangeError for a type that no column of ours has."""
    return pa.schema([_field(field) for field in schema.fields])


def planned(table: Table | None, schema: pa.Schema) -> Schema:
    """The table's schema when its columns are these."""
    if table is None:
        return new_schema(schema)
    if arrow_columns(table.schema()).equals(pa.schema([(field.name, field.type) for field in schema])):
        return table.schema()
    transaction = table.transaction()
    with transaction.update_schema(allow_incompatible_changes=True) as update:
        exchange(table.schema(), schema)(update)
    return transaction.table_metadata.schema()


def exchange(have: Schema, want: pa.Schema) -> Callable[[UpdateSchema], None]:
    """What makes of the columns ``have`` these and no others; one of another type is another column."""

    def change(update: UpdateSchema) -> None:
        held = {field.name: field for field in arrow_columns(have)}
        for name in held.keys() - set(want.names):
            update.delete_column((name,))
        for field in want:
            kind, required = _type(field.type, count(1)), not field.nullable
            known = held.get(field.name)
            if known is not None and not _follows(known.type, field.type):
                update.delete_column((field.name,))
                known = None
            if known is None:
                update.add_column((field.name,), kind, _comment(field), required=required)
            else:
                wider = kind if known.type != field.type and isinstance(kind, PrimitiveType) else None
                update.update_column((field.name,), field_type=wider, required=required, doc=_comment(field) or "")
        update.set_identifier_fields(*(field.name for field in want if _is_identifier(field)))

    return change


def growth(have: pa.Schema, want: pa.Schema) -> Callable[[UpdateSchema], None]:
    """What adds the columns that ``want`` has more, and widens those it has wider (columns.evolved)."""

    def change(update: UpdateSchema) -> None:
        for field in want:
            kind = _type(field.type, count(1))
            if field.name not in have.names:
                update.add_column((field.name,), kind, _comment(field))
            elif have.field(field.name).type != field.type:
                assert isinstance(kind, PrimitiveType)
                update.update_column((field.name,), field_type=kind)

    return change


def _follows(have: pa.DataType, want: pa.DataType) -> bool:
    return bool(have == want) or widens(have, want)


def _type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    if pa.types.is_list(kind):
        return ListType(next(ids), _type(kind.value_type, ids), element_required=False)
    if pa.types.is_struct(kind):
        return StructType(*(NestedField(next(ids), field.name, _type(field.type, ids), required=False)
                            for field in kind))  # fmt: skip
    if pa.types.is_map(kind):
        return MapType(next(ids), _type(kind.key_type, ids), next(ids), _type(kind.item_type, ids),
                       value_required=False)  # fmt: skip
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if kind not in _ICEBERG:
        raise SchemaChangeError(f"Iceberg has no type for {kind}.", hint="Name the column in pipeline.text_columns.")
    return _ICEBERG[kind]


def _field(field: NestedField, *, nullable: bool = True) -> pa.Field:
    return pa.field(field.name, _arrow(field.field_type), nullable, {FIELD_ID: str(field.field_id)})


def _arrow(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, ListType):
        return pa.list_(_field(kind.element_field))
    if isinstance(kind, StructType):
        return pa.struct([_field(field) for field in kind.fields])
    if isinstance(kind, MapType):
        return pa.map_(_field(kind.key_field, nullable=False), _field(kind.value_field))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if str(kind) not in _ARROW:
        raise SchemaChangeError(f"The table has a column of the type {kind}, which wal2lake does not write.")
    return _ARROW[str(kind)]


def _comment(field: pa.Field) -> str | None:
    text = (field.metadata or {}).get(COMMENT.encode())
    return None if text is None else str(text.decode())


def _is_identifier(field: pa.Field) -> bool:
    """Iceberg's identifiers are never NULL, and no floats."""
    key = _KEY in (field.metadata or {}) and not field.nullable
    return bool(key and not pa.types.is_floating(field.type) and not pa.types.is_nested(field.type))
