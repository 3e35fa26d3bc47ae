"""A clean lake is equal for every type, key and extreme; both sides print PostgreSQL's output to the last byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession

from tests.verify.lakes import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    FLOAT,
    INT16,
    INT32,
    INT64,
    NTZ,
    STRING,
    UTC_US,
    Shop,
)
from wal2lake.config import PipelineConfig
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify import VerifyReport, verify

pytestmark = [pytest.mark.server, pytest.mark.spark]

_KINDS = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN cents AS bigint CHECK (VALUE >= 0);
CREATE DOMAIN label AS varchar(20);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE kinds (
    a smallint, b text, i2 smallint, i4 int, i8 bigint, o oid, f4 float4, f8 float8, n numeric, n2 numeric(10, 2),
    n38 numeric(38, 20), ok boolean, t text, vc varchar(10), bp character(6), ch "char", nm name, j json, jb jsonb,
    u uuid, x bit varying, by bytea, d date, ts timestamp, tz timestamptz, tm time, iv interval, arr text[], arr2 int[],
    en mood, dom cents, lab label, pr pair, rg int4range, ip inet, mo money, bi bit(5), pt point,
    rc refcursor, "Odd ""name%" text, PRIMARY KEY (b, a));
INSERT INTO kinds VALUES
 (1, 'plain', -32768, -2147483648, -9223372036854775808, 4294967295, 1.1, 1e-300, 1.50, -99999999.99,
  0.00000000000000000001, true, 'text', 'vc', 'bp', 'c', 'nm', '{"a":  1}', '{"b": [1, 2]}',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '101', '\\x00ff10', '0001-01-01', '2024-02-29 23:59:59.999999',
  '1999-12-31 23:59:59.1+00', '12:34:56.789', '1 mon 2 days 03:04:05', '{a,"b c",NULL}', '{{1,2},{3,4}}',
  'sad', 5, 'label', '(1,"x y")', '[1,5)', '10.0.0.1/8', 12.34, '10101', '(1,2)', 'c 1', 'odd'),
 (2, 'größe 😀', 32767, 2147483647, 9223372036854775807, 0, 'NaN', 'NaN', 'NaN', 0, -0.1, false, '😀🏽 e\u0301 Ω', 'ü',
  '', '', '', 'null', '"\\u00e9"', '00000000-0000-0000-0000-000000000000', '', '', '9999-12-31', '0001-01-01 00:00:00',
  '9999-12-31 23:59:59.999999+00', '00:00', '-1 day', '{}', '{}', 'ok', 0, '', '(,)', 'empty', '::1', 0, '00000',
  '(-0,0)', '', ''),
 (-3, 'it''s "quoted" \\ back', 0, 0, 0, 1, 'infinity', '-infinity', 'infinity', 0.00, 0, NULL, E'line\nbreak\ttab\r',
  ' x ',  ' y ', '\\377', 'x', '{}', '{}', NULL, NULL, '\\x', '1970-01-01', '1970-01-01 00:00:00.000001',
  '1969-12-31 23:59:59.999999+00',
  '24:00', '0', '{NULL}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO kinds (a, b) VALUES (4, '');
UPDATE kinds SET f4 = '-0', f8 = '-0' WHERE a = 4;
"""
_SCHEMA = pa.schema(
    {"a": INT16, "b": STRING, "i2": INT16, "i4": INT32, "i8": INT64, "o": INT64, "f4": FLOAT, "f8": DOUBLE, "n": STRING}
    | {"n2": pa.decimal128(10, 2), "n38": pa.decimal128(38, 20), "ok": BOOL}
    | dict.fromkeys(("t", "vc", "bp", "ch", "nm", "j", "jb", "u", "x"), STRING)
    | {"by": BINARY, "d": DATE, "ts": NTZ, "tz": UTC_US}
    | dict.fromkeys(("tm", "iv", "arr", "arr2", "en", "dom", "lab", "pr", "rg", "ip", "mo", "bi", "pt", "rc"), STRING)
    | {"dom": INT64, 'Odd "name%': STRING}
)
_KEYS = {
    "by_text": (STRING, "md5(n::text)"),
    "by_unicode": (STRING, "chr(20 + n * 37) || n"),
    "by_uuid": (STRING, "md5(n::text)::uuid"),
    "by_moment": (UTC_US, "'2024-01-01'::timestamptz - n * '1 h 1 us'::interval"),
    "by_negative": (INT32, "-n * 1000"),
    "by_float": (DOUBLE, "n / 3.0::float8"),
    "by_bytes": (BINARY, "decode(md5(n::text), 'hex')"),
    "by_long": (STRING, "repeat('x', 70) || n"),
}


@pytest.fixture(scope="module")
def shop(server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop.open(server, "kinds", tmp_path_factory.mktemp("kinds"))
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def report(shop: Shop, spark: SparkSession) -> VerifyReport:
    shop.sql(_KINDS)
    shop.land("kinds", _SCHEMA)
    for name, (kind, key) in _KEYS.items():
        shop.sql(f"CREATE TABLE {name} AS SELECT {key} AS key, n AS value FROM generate_series(1, 500) n")
        shop.sql(f"ALTER TABLE {name} ADD PRIMARY KEY (key)")
        shop.land(name, pa.schema({"key": kind, "value": INT32}))
    _land_extremes(shop)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        return verify(shop.config, spark, range_rows=50)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")


def _land_extremes(shop: Shop) -> None:
    """Years outside 1 to 9999, which Python's datetime cannot hold but the lake's types can."""
    moments = ["-4712-01-01T00:00:00", "-0043-03-15T12:00:00.5", "0000-02-29T00:00:00", "10000-01-01T00:00:00.000001"]
    texts = [
        "4713-01-01 00:00:00 BC",
        "0044-03-15 12:00:00.5 BC",
        "0001-02-29 00:00:00 BC",
        "10000-01-01 00:00:00.000001",
    ]
    shop.sql("CREATE TABLE extremes (id int PRIMARY KEY, d date, ts timestamp, tz timestamptz)")
    for i, text in enumerate(texts):
        shop.sql(f"INSERT INTO extremes VALUES ({i}, '{text}', '{text}', '{text}')")
    us = pa.array(np.array(moments, "datetime64[us]"))
    days = pa.array(np.array(moments, "datetime64[D]").astype(np.int32)).cast(DATE)
    rows = pa.table({"id": pa.array(range(4), INT32), "d": days, "ts": us, "tz": us.cast(UTC_US)})
    write_deltalake(shop.uri("extremes"), rows, commit_properties=CommitProperties({"wal2lake.lsn": str(shop.lsn())}))


@pytest.mark.parametrize("name", ["kinds", "extremes", *_KEYS])
def test_a_clean_table_is_equal(report: VerifyReport, name: str) -> None:
    result = next(table for table in report.tables if table.name == name)
    assert result.findings() == []
    assert result.rows_source == result.rows_lake > 0
    assert name not in _KEYS or result.ranges > 5 or name == "by_long"


_ARRAYS = """
CREATE TABLE arrays (id int PRIMARY KEY, i int[], t text[], b bytea[], o bool[], d date[], ts timestamp[],
                     tz timestamptz[], n numeric(10, 2)[], f4 real[], f8 double precision[], u uuid[], m int[][],
                     s interval[], fm float8[][]);
INSERT INTO arrays VALUES
 (1, '{1,NULL,-3}', '{"",NULL,"NULL",nuLL,"a b","a,b","{}",é😀,"q\\"q","back\\\\slash","tab\ty"}',
  '{"\\\\x00ff",NULL}',
  '{t,f,NULL}', '{0001-01-01,NULL}', '{"2024-02-29 23:59:59.9",NULL}', '{"1969-12-31 23:59:59.999999+00"}',
  '{1.50,NULL}',
  '{1.1,-0,NaN,NULL}', '{1e-300,-0,0.1,Infinity}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{{1,NULL},{3,4}}',
  '{1 day,-00:00:01}', '{{0.1,-0},{NULL,NaN}}'),
 (2, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
INSERT INTO arrays (id, i, t, b) VALUES (3, NULL, NULL, NULL), (4, '{NULL}', '{NULL}', '{NULL}');
"""
_LISTS = pa.schema(
    {"id": INT32, "i": pa.list_(INT32), "t": pa.list_(STRING), "b": pa.list_(BINARY), "o": pa.list_(BOOL)}
    | {"d": pa.list_(DATE), "ts": pa.list_(NTZ), "tz": pa.list_(UTC_US), "n": pa.list_(pa.decimal128(10, 2))}
    | {"f4": pa.list_(FLOAT), "f8": pa.list_(DOUBLE), "u": pa.list_(STRING), "m": pa.list_(pa.list_(INT32))}
    | {"s": pa.list_(STRING), "fm": pa.list_(pa.list_(DOUBLE))}
)


def test_arrays_are_compared_element_by_element(shop: Shop, spark: SparkSession) -> None:
    shop.sql(_ARRAYS)
    names = ", ".join(f"{name}::text[]" if name in ("u", "s") else name for name in _LISTS.names)
    columns = list(zip(*shop.connection.execute(f"SELECT {names} FROM arrays ORDER BY id".encode()), strict=True))

    def land(**changed: object) -> None:
        values = {name: list(column) for name, column in zip(_LISTS.names, columns, strict=True)}
        for name, value in changed.items():
            values[name][0] = value
        stamp = CommitProperties({"wal2lake.lsn": str(shop.lsn())})
        rows = pa.table([pa.array(values[field.name], field.type) for field in _LISTS], schema=_LISTS)
        write_deltalake(shop.uri("arrays"), rows, mode="overwrite", commit_properties=stamp)

    land()
    assert verify(shop.config, spark, ["kinds.arrays"]).tables[0].findings() == []
    land(i=[1, -3], t=["NULL"], f4=[1.1, 0.0, float("nan"), None], f8=[1e-300], m=[[1], [None], [3], [4]], o=[True])
    changed = verify(shop.config, spark, ["kinds.arrays"]).tables[0]
    assert changed.bad_ranges[0].columns == ("i", "t", "o", "f4", "f8", "m")


def test_elements_that_became_null_by_policy_count_as_null(shop: Shop, spark: SparkSession) -> None:
    shop.sql("CREATE TABLE endless_arrays (id int PRIMARY KEY, d date[], n numeric(5, 1)[])")
    shop.sql("INSERT INTO endless_arrays VALUES (1, '{infinity,NULL,2024-01-01}', '{NaN,1.0}'), (2, '{}', '{{1,2}}')")
    kinds = pa.schema({"id": INT32, "d": pa.list_(DATE), "n": pa.list_(pa.decimal128(5, 1))})
    rows = [{"id": 1, "d": [None, None, date(2024, 1, 1)], "n": [None, Decimal("1.0")]}, {"id": 2, "d": [], "n": None}]
    stamp = CommitProperties({"wal2lake.lsn": str(shop.lsn())})
    write_deltalake(shop.uri("endless_arrays"), pa.Table.from_pylist(rows, schema=kinds), commit_properties=stamp)
    lenient = replace(shop.config, pipeline=PipelineConfig(unrepresentable="null"))
    found = verify(lenient, spark, ["kinds.endless_arrays"]).tables[0]
    assert [bad.columns for bad in found.bad_ranges] == [("n",)], "an array of another shape is no NULL"


def test_what_became_null_by_policy_counts_as_null(shop: Shop, spark: SparkSession) -> None:
    shop.sql("CREATE TABLE endless (id int PRIMARY KEY, d date, ts timestamp, n numeric(5, 1), info text)")
    shop.sql("INSERT INTO endless VALUES (1, 'infinity', '-infinity', 'NaN', 'infinity')")
    shop.sql("INSERT INTO endless VALUES (2, '2024-01-01', now(), 1, NULL)")
    shop.sql("INSERT INTO endless VALUES (3, '0044-03-15 BC', '10000-01-01', 1, NULL)")
    shop.sql("INSERT INTO endless VALUES (4, '9999-12-31', '0001-01-01', 1000.0, 'BC')")
    schema = pa.schema({"id": INT32, "d": DATE, "ts": NTZ, "n": pa.decimal128(5, 1), "info": STRING})
    placeless = ("infinity", "-infinity", "NaN", "0044-03-15 BC", "10000-01-01 00:00:00")
    rows = shop.rows("endless", schema, lambda text: None if text in placeless else text)
    rows[0]["info"] = "infinity"
    stamp = CommitProperties({"wal2lake.lsn": str(shop.lsn())})
    write_deltalake(shop.uri("endless"), pa.Table.from_pylist(rows, schema=schema), commit_properties=stamp)
    lenient = replace(shop.config, pipeline=PipelineConfig(unrepresentable="null"))
    assert verify(lenient, spark, ["kinds.endless"]).ok
    strict = verify(shop.config, spark, ["kinds.endless"]).tables[0]
    assert strict.bad_ranges[0].columns == ("d", "ts", "n")
