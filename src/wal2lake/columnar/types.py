"""THE type table: PostgreSQL type OID ↔ codec ↔ Arrow ↔ Spark; a type stands here, or lands as PostgreSQL's own text.

Nothing else in the project decides what a column becomes. A type without a row here, and a numeric that decimal128
cannot hold whole, is a string with the type's output text (``known`` is False), so nothing is lost and nothing refused.

Source: src/include/catalog/pg_type.dat; PostgreSQL documentation, "Data Types".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from wal2lake.names import qualified

if TYPE_CHECKING:
    from wal2lake.pgoutput.messages import Relation, Type

NUMERIC_OID: Final = 1700
DECIMAL_DIGITS: Final = 38
NO_TYPMOD: Final = -1

# OID, name in pg_catalog, codec (the pair of decoders in text.py and binary.py), Arrow type.
_TABLE: Final[tuple[tuple[int, str, str, pa.DataType], ...]] = (
    (16, "bool", "bool", pa.bool_()),
    (17, "bytea", "bytea", pa.binary()),
    (19, "name", "text", pa.string()),
    (20, "int8", "int8", pa.int64()),
    (21, "int2", "int2", pa.int16()),
    (23, "int4", "int4", pa.int32()),
    (25, "text", "text", pa.string()),
    (26, "oid", "oid", pa.int64()),
    (114, "json", "text", pa.string()),
    (142, "xml", "text", pa.string()),
    (700, "float4", "float4", pa.float32()),
    (701, "float8", "float8", pa.float64()),
    (1042, "bpchar", "text", pa.string()),
    (1043, "varchar", "text", pa.string()),
    (1082, "date", "date", pa.date32()),
    (1114, "timestamp", "timestamp", pa.timestamp("us")),
    (1184, "timestamptz", "timestamptz", pa.timestamp("us", tz="UTC")),
    (2950, "uuid", "uuid", pa.string()),
    (3802, "jsonb", "jsonb", pa.string()),
)
_BY_OID: Final = {oid: (codec, arrow) for oid, _, codec, arrow in _TABLE}
_OID_BY_NAME: Final = {name: oid for oid, name, _, _ in _TABLE} | {"numeric": NUMERIC_OID}

_SPARK: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


@dataclass(frozen=True)
class ColumnType:
    """What a column of PostgreSQL type ``oid`` (with ``typmod``, −1: none) becomes.

    ``codec`` names the decoder; ``known`` is False when the column holds the type's output
    text for want of a better type.
    """

    oid: int
    typmod: int
    codec: str
    arrow: pa.DataType
    known: bool


def column_type(type_oid: int, typmod: int = NO_TYPMOD, base_oid: int | None = None) -> ColumnType:
    """Look the type up; ``base_oid`` is the base type of a domain, whose own typmod nobody sends."""
    oid = base_oid or type_oid
    if oid == NUMERIC_OID:
        arrow = _decimal(typmod)
        if arrow is not None:
            return ColumnType(type_oid, typmod, "numeric", arrow, known=True)
    if oid in _BY_OID:
        return ColumnType(type_oid, typmod, *_BY_OID[oid], known=True)
    return output_text(type_oid, typmod)


def output_text(type_oid: int, typmod: int = NO_TYPMOD) -> ColumnType:
    """The column as a string that holds what the type's output function says."""
    return ColumnType(type_oid, typmod, "output", pa.string(), known=False)


def _decimal(typmod: int) -> pa.DataType | None:
    """numeric(p, s) as decimal128, if it fits. Source: src/backend/utils/adt/numeric.c, make_numeric_typmod."""
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024  # 11 bits, signed since PostgreSQL 15
    fits = 0 < precision <= DECIMAL_DIGITS and 0 <= scale <= precision  # without a typmod it is beyond all digits
    return pa.decimal128(precision, scale) if fits else None


def spark_ddl(arrow: pa.DataType) -> str:
    """The Spark SQL type that Spark's own Arrow conversion maps to ``arrow``; KeyError for a type we never make."""
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_ddl(arrow.value_type)}>"
    return _SPARK[arrow]


@dataclass(frozen=True)
class TableColumn:
    """``key``: part of the replica identity (under REPLICA IDENTITY FULL every column is)."""

    name: str
    type: ColumnType
    key: bool


@dataclass(frozen=True)
class TableSchema:
    """One version of a published table's shape.

    ``replica_identity`` is 'd', 'n', 'f' or 'i' (pg_class.relreplident).
    """

    relation_id: int
    namespace: str
    name: str
    columns: tuple[TableColumn, ...]
    replica_identity: str

    @classmethod
    def from_relation(
        cls, relation: Relation, types: Mapping[int, Type] | None = None, text_columns: Collection[str] = ()
    ) -> TableSchema:
        """Build from the stream's Relation message and the Type messages before it, by OID.

        ``text_columns`` (``schema.table.column``) land as output text whatever their type.
        """
        announced = types or {}
        described = (
            (c.name, c.type_oid, c.typmod, _base_oid(c.type_oid, announced), bool(c.flags & 1))
            for c in relation.columns
        )
        return cls.build(
            relation.relation_id,
            relation.namespace,
            relation.name,
            described,
            relation.replica_identity,
            text_columns,
        )

    @classmethod
    def build(
        cls,
        relation_id: int,
        namespace: str,
        name: str,
        columns: Iterable[tuple[str, int, int, int | None, bool]],
        replica_identity: str = "d",
        text_columns: Collection[str] = (),
    ) -> TableSchema:
        """Build from plain values, as the catalog has them.

        ``columns`` gives (name, type OID, typmod, base type OID or None, key) per column.
        """
        made = tuple(
            TableColumn(
                column,
                output_text(oid, typmod)
                if qualified(namespace, name, column) in text_columns
                else column_type(oid, typmod, base_oid),
                key,
            )
            for column, oid, typmod, base_oid, key in columns
        )
        return cls(relation_id, namespace, name, made, replica_identity)

    @property
    def qualified_name(self) -> str:
        """``schema.table``, as errors and settings name it."""
        return qualified(self.namespace, self.name)

    @cached_property
    def digest(self) -> str:
        """16 hex digits that change exactly when the columns' names, order, types or keys do."""
        content = [(c.name, c.type.oid, c.type.typmod, str(c.type.arrow), c.key) for c in self.columns]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """One nullable field per column, in the table's order."""
        return pa.schema([pa.field(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def spark_ddl(self) -> str:
        """The columns as Spark DDL: ``` `id` BIGINT, `note` STRING ```."""
        return ", ".join(f"`{c.name.replace('`', '``')}` {spark_ddl(c.type.arrow)}" for c in self.columns)


def _base_oid(type_oid: int, types: Mapping[int, Type]) -> int | None:
    """A domain's Type message names its base type; only a built-in one tells us more than its text."""
    announced = types.get(type_oid)
    if announced is None or announced.namespace not in ("", "pg_catalog"):  # pg_catalog travels as ""
        return None
    return _OID_BY_NAME.get(announced.name)
