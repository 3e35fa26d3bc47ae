"""hstore, citext and the rest of contrib, and XML, of every version: text, binary and COPY say what the server says.

`python -m bench types` has `verify` compare the same values in a lake; its own printer knows what is expected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from bench import types
from bench import types_cases as cases
from tests.columnar.made import Source, streamed_from
from tests.columnar.stream import SESSION
from tests.columnar.test_server_values import OUTPUT_TEXT
from tests.pipeline.conftest import Site, opened
from wal2lake.columnar.types import spark_ddl
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

CASES = cases.EXTENSIONS | cases.EXTENSIONS_TEXT
del CASES["ext.issn[]"]  # isn has no binary form, of which a server tells at an array by an error alone
BECOMES = {
    "ext.hstore": "MAP<STRING, STRING>",
    "ext.hstore[]": "ARRAY<MAP<STRING, STRING>>",
    "ext.hstore[][]": "ARRAY<ARRAY<MAP<STRING, STRING>>>",
    "tags": "MAP<STRING, STRING>",
    "tags[]": "ARRAY<MAP<STRING, STRING>>",
    "taglists": "ARRAY<MAP<STRING, STRING>>",
    "ext.citext": "STRING",
    "ext.citext[]": "ARRAY<STRING>",
    "ext.citext[][]": "ARRAY<ARRAY<STRING>>",
    "email": "STRING",
    "email[]": "ARRAY<STRING>",
    "tagged": "STRUCT<h: MAP<STRING, STRING>, c: STRING, hs: ARRAY<MAP<STRING, STRING>>, e: STRING>",
    "tagged[]": "ARRAY<STRUCT<h: MAP<STRING, STRING>, c: STRING, hs: ARRAY<MAP<STRING, STRING>>, e: STRING>>",
    "namerange": "STRUCT<lower: STRING, upper: STRING, lower_inc: BOOLEAN, upper_inc: BOOLEAN, empty: BOOLEAN>",
    "ext.lo": "BIGINT",
    "xml": "STRING",
    "xml[]": "ARRAY<STRING>",
    **{kind: "ARRAY<STRING>" if kind.endswith("[]") else "STRING" for kind in cases.EXTENSIONS_TEXT},
}
# how the server takes a value apart, for those types that land as more than its text
PAIRS = "(SELECT array_agg(ARRAY[key, value]) FROM ext.each({}))"
PARTS = {
    "ext.hstore": PAIRS.format("c"),
    "tags": PAIRS.format("c"),
    "ext.hstore[]": f"(SELECT jsonb_agg({PAIRS.format('e')} ORDER BY i) FROM unnest(c) WITH ORDINALITY u (e, i))",
    "ext.citext[]": "c::text[]",
    "email[]": "c::text[]",
    "ext.ltree[]": "c::text[]",
    "ext.cube[]": "c::text[]",
    "xml[]": "c::text[]",
    "tagged": f"CASE WHEN c IS DISTINCT FROM NULL THEN jsonb_build_array({PAIRS.format('(c).h')}, (c).c, (c).e) END",
    "ext.lo": "c::oid::bigint",
}


@pytest.mark.timeout(120)
def test_every_way_says_what_the_server_says(versioned: EmbeddedPostgres) -> None:
    with streamed_from(versioned, cases.PREPARE_EXTENSIONS, CASES) as source:
        for place, kind in enumerate(CASES):
            streamed, table = source.streamed(f"t{place}"), f"t{place}"
            assert spark_ddl(streamed.type) == BECOMES[kind], kind
            assert streamed.to_pylist() == source.copied(table).to_pylist(), kind
            if source.binary and kind in cases.EXTENSIONS:
                assert streamed.to_pylist() == source.streamed(table, binary=True).to_pylist(), kind
            if kind in PARTS or BECOMES[kind] == "STRING":
                assert taken_apart(kind, streamed) == truth(source, table, PARTS.get(kind, OUTPUT_TEXT)), kind


def taken_apart(kind: str, array: pa.Array) -> list[Any]:
    """The values as ``PARTS`` asks for them."""
    values: list[Any] = array.to_pylist()
    if kind == "tagged":
        return [value and [pairs(value["h"]), value["c"], value["e"]] for value in values]
    if kind == "ext.hstore[]":
        return [None if value is None else [pairs(each) for each in value] or None for value in values]
    return [pairs(value) for value in values] if "MAP" in BECOMES[kind] else values


def pairs(value: list[tuple[str, str | None]] | None) -> list[list[str | None]] | None:
    """each() makes no row of an empty one."""
    return [list(pair) for pair in value] or None if value is not None else None


def truth(source: Source, table: str, expression: str) -> list[Any]:
    with psycopg.connect(source.dsn, options=SESSION) as connection:
        return [row[0] for row in connection.execute(f"SELECT {expression} FROM {table} ORDER BY id".encode())]


@pytest.mark.parametrize("versioned", [18], indirect=True)
def test_keys_and_whole_rows_of_them(versioned: EmbeddedPostgres, tmp_path: Path) -> None:
    with opened(Site(versioned, tmp_path), versioned) as site:
        site.sql(
            cases.PREPARE_EXTENSIONS,
            "SET search_path = public, ext",
            "CREATE TABLE k (c ext.citext PRIMARY KEY, v int)",
            "CREATE TABLE m (h ext.hstore PRIMARY KEY, v int)",
            "CREATE TABLE w (h ext.hstore, c ext.citext[])",
            "ALTER TABLE w REPLICA IDENTITY FULL",
            "INSERT INTO k VALUES ('Ab', 1), ('b', 2), ('', 3)",
            "INSERT INTO m VALUES ('a=>1, b=>NULL', 1), ('', 2), ('\"\"=>\"NULL\"', 3)",
            "INSERT INTO w VALUES ('a=>NULL', '{a}'), ('a=>\"NULL\"', '{a}'), ('', '{A}'), (NULL, '{}'), ('', '{A}')",
        )
        site.publish("k", "m", "w")
        site.run()
        site.sql(
            "UPDATE k SET v = 10 WHERE c = 'aB'",
            "UPDATE k SET c = 'B' WHERE c = 'b'",
            "UPDATE m SET v = 10 WHERE h = 'b=>NULL, a=>1'",
            "UPDATE m SET h = 'a=>\"NULL\"' WHERE v = 2",
            "DELETE FROM m WHERE v = 3",
            "DELETE FROM w WHERE ctid = '(0,1)' OR ctid = '(0,3)'",
            "UPDATE w SET c = NULL WHERE h IS NULL",
        )
        site.run()
        assert site.lake("public.k") == [("", 3), ("Ab", 10), ("B", 2)]
        assert site.lake("public.m") == [([("a", "1"), ("b", None)], 10), ([("a", "NULL")], 2)]
        assert site.lake("public.w") == [(None, None), ([("a", "NULL")], ["a"]), ([], ["A"])]


def test_they_land_and_verify_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert types.main(["--group", "extensions"]) == 0, capsys.readouterr().out
    assert "equal" in capsys.readouterr().out
