"""Types that the catalog tells of, and what came with them: text, binary and COPY say one thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest

from bench import types_cases as cases
from tests.columnar.made import Source, streamed_from
from wal2lake.columnar.types import TypeRules, spark_ddl
from wal2lake.tables.state import TableState
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

TEXT_ALONE = ("mixed", "mixed[]", "twins", "box[]", "regtype[]", "numrange", "nummultirange", "numrange[]")
CASES = cases.MADE | {f"{kind} ": cases.TEXT_ALONE[kind] for kind in TEXT_ALONE}
BY_TABLE = {f"t{place}": kind for place, kind in enumerate(CASES)}
STRUCTS = {
    "pair": "STRUCT<a: INT, b: STRING>",
    "couple": "STRUCT<a: INT, b: STRING>",
    "pair[]": "ARRAY<STRUCT<a: INT, b: STRING>>",
    "single": "STRUCT<a: INT>",
    '"Od d"."na""me, {}"': 'STRUCT<`we"ird, (na.me) {};=`: INT, SELECT: BOOLEAN, `ä``b`: STRUCT<a: INT, b: STRING>>',
    "int4range": "STRUCT<lower: INT, upper: INT, lower_inc: BOOLEAN, upper_inc: BOOLEAN, empty: BOOLEAN>",
    "floats": "STRUCT<lower: DOUBLE, upper: DOUBLE, lower_inc: BOOLEAN, upper_inc: BOOLEAN, empty: BOOLEAN>",
    "int4multirange": "ARRAY<STRUCT<lower: INT, upper: INT, lower_inc: BOOLEAN, upper_inc: BOOLEAN, empty: BOOLEAN>>",
    "mood": "STRING",
    "mood[][]": "ARRAY<ARRAY<STRING>>",
    "tempers": "ARRAY<STRING>",
    "time": "BIGINT",
    "timetz": "STRUCT<microseconds: BIGINT, utc_offset: INT>",
    "money": "DECIMAL(19,2)",
    "xid": "BIGINT",
    "xid8": "DECIMAL(20,0)",
    "mixed ": "STRUCT<p: STRING, n: STRING, m: DECIMAL(19,2)>",
    "twins ": "STRING",
    "box[] ": "STRING",
    "regtype[] ": "ARRAY<STRING>",
}


@pytest.fixture(scope="module")
def source(server: EmbeddedPostgres) -> Iterator[Source]:
    with streamed_from(server, cases.PREPARE, CASES) as made:
        yield made


@pytest.mark.parametrize("table", BY_TABLE, ids=BY_TABLE.values())
def test_every_way_says_the_same(source: Source, table: str) -> None:
    streamed = source.streamed(table)
    assert [value is None for value in streamed.to_pylist()] == [value is None for value in [
        None, *CASES[BY_TABLE[table]], None, *CASES[BY_TABLE[table]]]]  # fmt: skip
    assert repr(source.copied(table).to_pylist()) == repr(streamed.to_pylist())
    if BY_TABLE[table] in cases.MADE:
        assert repr(source.streamed(table, binary=True).to_pylist()) == repr(streamed.to_pylist())


@pytest.mark.parametrize("kind", STRUCTS)
def test_what_a_type_becomes(source: Source, kind: str) -> None:
    table = next(table for table, own in BY_TABLE.items() if own == kind)
    assert spark_ddl(source.streamed(table).type) == STRUCTS[kind]


def values(source: Source, kind: str) -> list[Any]:
    table = next(table for table, own in BY_TABLE.items() if own == kind)
    return source.streamed(table).to_pylist()[1 : 1 + len(CASES[kind])]


def test_values_are_what_was_written(source: Source) -> None:
    assert values(source, "time")[:3] == [0, 86_399_999_999, 86_400_000_000]
    assert values(source, "timetz")[1] == {"microseconds": 86_399_999_999, "utc_offset": -(15 * 3600 + 59 * 60 + 59)}
    assert [str(amount) for amount in values(source, "money")[-2:]] == ["-92233720368547758.08", "92233720368547758.07"]
    assert [tuple(found.values()) for found in values(source, "int4range")] == [
        (None, None, False, False, True),
        (1, 10, True, False, False),
        (None, None, False, False, False),
        (None, 6, False, False, False),
        (-(2**31), None, True, False, False),
        (7, 8, True, False, False),
    ]
    assert values(source, "pair")[:4] == [
        {"a": 1, "b": "a b"},
        {"a": None, "b": None},
        {"a": 2, "b": ""},
        {"a": 3, "b": 'q"q\\z,()[]{}'},
    ]
    whole, nothing, _ = values(source, "everything")
    assert set(nothing.values()) == {None}
    assert (whole["m"], whole["ps"]) == ([["a", "b c"], [None, "d"]], [{"a": 2, "b": "c"}, None])
    assert (whole["c"], whole["b"], whole["t"], whole["mo"]) == ("x  ", b"\0\xff", 45_296_000_000, "happy")


def test_what_was_asked_of_the_catalog_is_kept(source: Source) -> None:
    table = next(table for table, own in BY_TABLE.items() if own == "everything[]")
    state = TableState(types=source.rules(table))
    assert len(source.rules(table).user_types) > 5
    assert TableState.from_document(json.loads(json.dumps(state.to_document()))).types == state.types
    older = asdict(TypeRules(3))
    del older["user_types"], older["money_scale"]
    assert TableState.from_document({**TableState().to_document(), "types": older}).types == TypeRules(3)


def test_an_older_edition_knows_none_of_it(source: Source) -> None:
    for table, kind in BY_TABLE.items():
        rules = replace(source.rules(table), edition=1)
        if kind in STRUCTS:
            found = rules.column("c", source.tables[table].columns[1].type_oid, -1, None)
            assert (found.arrow, found.known) == (pa.string(), False), kind
