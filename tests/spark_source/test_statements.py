"""Statements that make a lake's tables known are read by those whose dialect it is, whatever the names are."""

from __future__ import annotations

import duckdb
import pytest
from pyspark.sql import SparkSession

from wal2lake.tables.statements import Dialect, LakeTable, statements

TABLES = [
    LakeTable("public", "orders", "s3://lake/public/orders"),
    LakeTable("public", "it's", r"C:\lake\new"),
    LakeTable("a`b", 'c"d', "/lake/o'clock"),
    LakeTable("Ünicode", "; DROP TABLE x; --", r"/lake/\'"),
]


def test_spark_reads_what_is_meant(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - there is no other door to it
    found = [parser.parsePlan(made.removesuffix(";")) for made in statements(TABLES, Dialect.SPARK, "lake")]
    plans = [plan for plan in found if plan.getClass().getSimpleName() == "CreateTable"]
    assert len(found) == len(TABLES) + 3
    for plan, table in zip(plans, TABLES, strict=True):
        name = plan.name().nameParts()
        assert [name.apply(i) for i in range(name.length())] == ["lake", table.namespace, table.name]
        assert plan.tableSpec().location().get() == table.place
        assert plan.tableSpec().provider().get() == "DELTA"


def test_duckdb_reads_what_is_meant() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE MACRO delta_scan(place) AS TABLE SELECT place")
        for made in statements(TABLES, Dialect.DUCKDB):
            connection.execute(made)
        for table in TABLES:
            name = ".".join('"' + part.replace('"', '""') + '"' for part in (table.namespace, table.name))
            assert connection.sql(f"FROM {name}").fetchall() == [(table.place,)]


@pytest.mark.parametrize(
    ("dialect", "made"),
    [
        (
            Dialect.TRINO,
            "CALL \"delta\".\"system\".\"register_table\"(schema_name => 'public', table_name => 'it''s',"
            r" table_location => 'C:\lake\new');",
        ),
        (
            Dialect.ATHENA,
            "CREATE EXTERNAL TABLE IF NOT EXISTS `delta`.`public`.`it's` LOCATION 'C:\\\\lake\\\\new'"
            " TBLPROPERTIES ('table_type' = 'DELTA');",
        ),
    ],
)
def test_those_that_are_not_here(dialect: Dialect, made: str) -> None:
    assert list(statements(TABLES[1:2], dialect, "delta"))[1] == made


@pytest.mark.parametrize("dialect", Dialect)
def test_no_name_leads_to_another_tables_rows(dialect: Dialect) -> None:
    names = ("one", "CASE", "case", "new\nline", r"new\nline")
    made = list(statements([LakeTable("shop", name, f"/lake/{name}") for name in names], dialect))
    assert [line for line in made if line.startswith("--")] == [
        "-- shop.CASE: left out, for another table's name differs by case alone.",
        "-- shop.case: left out, for another table's name differs by case alone.",
        r'-- shop.U&"new\+00000Aline": left out, for its name cannot be printed.',
    ]
    assert len(made) == 1 + len(names)
