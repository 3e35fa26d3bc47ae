"""The type table and the schema version made from it."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.columnar.catalog import ARRAYS_OF_SERVER
from wal2lake.columnar.type_table import ARRAY_TYPES
from wal2lake.columnar.types import ColumnType, TableSchema, column_type, spark_ddl


def numeric_typmod(precision: int, scale: int) -> int:
    """As numeric.c's make_numeric_typmod."""
    return (precision << 16 | scale & 0x7FF) + 4


def schema(*columns: tuple[str, int, int, int | None, bool], **options: Any) -> TableSchema:
    return TableSchema.build(1, "s", "t", columns, **options)


@pytest.mark.parametrize(
    ("precision", "scale", "arrow"),
    [
        (12, 2, pa.decimal128(12, 2)),
        (38, 38, pa.decimal128(38, 38)),
        (1, 0, pa.decimal128(1, 0)),
        (39, 0, pa.string()),
        (3, -2, pa.string()),
        (3, 5, pa.string()),
        (1000, 1000, pa.string()),
    ],
)
def test_a_numeric_is_a_decimal_when_it_fits(precision: int, scale: int, arrow: pa.DataType) -> None:
    assert column_type(1700, numeric_typmod(precision, scale)).arrow == arrow


# OIDs and names as in src/include/catalog/pg_type.dat
@pytest.mark.parametrize(
    ("oid", "name", "codec", "arrow"),
    [
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
    ],
)
def test_a_type_is_known_by_its_oid_and_a_domain_by_its_name(
    oid: int, name: str, codec: str, arrow: pa.DataType
) -> None:
    assert column_type(oid) == ColumnType(oid, -1, codec, arrow, True)
    column = SimpleNamespace(flags=0, name="c", type_oid=16_400, typmod=-1)
    relation = SimpleNamespace(relation_id=7, namespace="s", name="t", replica_identity="d", columns=(column,))
    domain = SimpleNamespace(type_oid=16_400, namespace="", name=name)
    made = TableSchema.from_relation(relation, {16_400: domain})  # type: ignore[arg-type]
    assert made.columns[0].type == ColumnType(16_400, -1, codec, arrow, True)


@pytest.mark.parametrize("typmod", [-1, 0, 3])
def test_a_numeric_without_a_scale_is_output_text(typmod: int) -> None:
    assert column_type(1700, typmod).arrow == pa.string()


def test_types_without_a_row_are_output_text() -> None:
    for oid in (1700, 1007, 1186, 16_400):
        assert column_type(oid) == ColumnType(oid, -1, "output", pa.string(), False)


def test_the_arrays_are_as_the_servers_catalog_had_them() -> None:
    assert {(oid, name): element for oid, name, element in ARRAY_TYPES} == ARRAYS_OF_SERVER


def test_a_domain_is_its_base_type() -> None:
    assert column_type(16_400, -1, 23) == ColumnType(16_400, -1, "int4", pa.int32(), True)
    relation = SimpleNamespace(
        relation_id=7,
        namespace="s",
        name="t",
        replica_identity="f",
        columns=tuple(
            SimpleNamespace(flags=flags, name=f"c{oid}", type_oid=oid, typmod=-1)
            for flags, oid in ((1, 16_400), (0, 16_401), (0, 16_402), (0, 25))
        ),
    )
    types = {
        16_400: SimpleNamespace(type_oid=16_400, namespace="", name="int8"),
        16_401: SimpleNamespace(type_oid=16_401, namespace="pg_catalog", name="numeric"),
        16_402: SimpleNamespace(type_oid=16_402, namespace="s", name="int8"),  # an enum of that name
    }
    made = TableSchema.from_relation(relation, types, text_columns=["s.t.c25"])  # type: ignore[arg-type]
    assert [c.type.arrow for c in made.columns] == [pa.int64(), pa.string(), pa.string(), pa.string()]
    assert [c.type.known for c in made.columns] == [True, False, False, False]
    assert [c.key for c in made.columns] == [True, False, False, False]
    assert (made.relation_id, made.qualified_name, made.replica_identity) == (7, "s.t", "f")


def test_the_digest_tells_versions_apart() -> None:
    one = schema(("a", 23, -1, None, True), ("b", 25, -1, None, False))
    again = TableSchema.build(2, "x", "y", [("a", 23, -1, None, True), ("b", 25, -1, None, False)], "f")
    assert one.digest == again.digest
    others = [
        schema(("a", 23, -1, None, True)),
        schema(("b", 25, -1, None, False), ("a", 23, -1, None, True)),
        schema(("a", 23, -1, None, False), ("b", 25, -1, None, False)),
        schema(("a", 20, -1, None, True), ("b", 25, -1, None, False)),
        schema(("a", 23, -1, None, True), ("b", 25, -1, None, False), text_columns=["s.t.a"]),
    ]
    assert len({one.digest, *(s.digest for s in others)}) == 6


def test_the_schema_in_arrow_and_spark_and_pickled() -> None:
    made = schema(("a", 23, -1, None, True), ("x`y", 1700, numeric_typmod(10, 2), None, False))
    assert made.arrow_schema == pa.schema([("a", pa.int32()), ("x`y", pa.decimal128(10, 2))])
    assert made.spark_ddl == "`a` INT, `x``y` DECIMAL(10,2)"
    assert spark_ddl(pa.list_(pa.string())) == "ARRAY<STRING>"
    assert pickle.loads(pickle.dumps(made)) == made
