"""Types that users made, in tables that live: what becomes of a column when its type changes under it."""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.pipeline.conftest import Site
from tests.pipeline.test_column_types import kinds
from wal2lake.errors import Wal2LakeError
from wal2lake.tables.asking import ask

pytestmark = pytest.mark.server

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
MADE = (
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE t (id int PRIMARY KEY, p pair, m mood, l pair[], r int4range, at time)",
    "INSERT INTO t VALUES (1, '(1,x)', 'ok', '{\"(2,y)\",NULL}', '[1,3)', '01:02:03')",
    "INSERT INTO t VALUES (2, NULL, NULL, '{}', 'empty', NULL)",
)


def test_they_land_and_follow(site: Site) -> None:
    site.sql(*MADE)
    site.publish("t")
    site.run()
    assert kinds(site)["l"] == pa.list_(PAIR)
    site.sql(
        "ALTER TYPE mood ADD VALUE 'new'",
        "INSERT INTO t VALUES (3, '(,\"\")', 'new', NULL, '(,)', '24:00')",
        "UPDATE t SET p = '(9,\"q\"\"\")', r = '[5,)' WHERE id = 1",
        "ALTER TABLE t ADD COLUMN again pair",
        "UPDATE t SET again = '(7,z)' WHERE id = 2",
    )
    site.run()
    rows = {row[0]: row for row in site.lake("public.t")}
    assert kinds(site) == {"id": pa.int32(), "p": PAIR, "m": pa.string(), "l": pa.list_(PAIR), "r": kinds(site)["r"],
                           "at": pa.int64(), "again": PAIR}  # fmt: skip
    assert rows[1][1] == {"a": 9, "b": 'q"'}
    assert (rows[3][1], rows[3][2], rows[3][5]) == ({"a": None, "b": ""}, "new", 86_400_000_000)
    assert rows[2][6] == {"a": 7, "b": "z"}
    assert (rows[1][4]["lower"], rows[1][4]["upper"], rows[2][4]["empty"]) == (5, None, True)


def test_an_attribute_more_has_the_table_read_anew_with_it(site: Site) -> None:
    site.configure_pipeline(on_unfollowable="resync")
    site.sql(*MADE)
    site.publish("t")
    site.run()
    site.sql("ALTER TYPE pair ADD ATTRIBUTE c bigint", "UPDATE t SET p = '(5,z,6)' WHERE id = 2")
    site.run()
    assert [row[1] for row in site.lake("public.t")] == [{"a": 1, "b": "x", "c": None}, {"a": 5, "b": "z", "c": 6}]
    assert site.lake("public.t")[0][3] == [{"a": 2, "b": "y", "c": None}, None]


@pytest.mark.parametrize(
    "change",
    ["RENAME ATTRIBUTE b TO c", "DROP ATTRIBUTE b"],
)
def test_a_struct_never_says_what_its_type_does_not(site: Site, change: str) -> None:
    site.configure_pipeline(on_unfollowable="resync")
    site.sql(*MADE)
    site.publish("t")
    site.run()
    site.sql(f"ALTER TYPE pair {change}", "UPDATE t SET at = '00:00' WHERE id = 2")
    with pytest.raises(Wal2LakeError, match="other parts"):
        for _ in range(3):
            site.run()
    assert kinds(site)["p"] == PAIR
    ask(site.config, ["public.t"], "resync")
    site.run()
    name = "c" if "RENAME" in change else "a"
    assert kinds(site)["p"].field(kinds(site)["p"].num_fields - 1).name == name


@pytest.mark.parametrize(
    ("unfollowable", "reason"),
    [("quarantine", "rewritten with other columns or types"), ("resync", "other parts")],
)
def test_an_attribute_of_another_type_is_never_read_as_the_old(site: Site, unfollowable: Any, reason: str) -> None:
    """A server lets nobody do that to a type in use: the column is a text for a moment, of which the stream tells
    nothing, and then of the same type again, by its OID and name."""
    site.configure_pipeline(on_unfollowable=unfollowable)
    site.sql(*MADE, "ALTER TABLE t DROP COLUMN l")
    site.publish("t")
    site.run()
    before = site.lake("public.t")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="uses it"):
        site.sql("ALTER TYPE pair ALTER ATTRIBUTE a TYPE bigint")
    with site.connection.transaction():
        site.sql(
            "ALTER TABLE t ALTER COLUMN p TYPE text",
            "ALTER TYPE pair ALTER ATTRIBUTE a TYPE bigint",
            "ALTER TABLE t ALTER COLUMN p TYPE pair USING ROW(7, 'x')::pair",
            "INSERT INTO t (id, p) VALUES (3, ROW(7, 'z'))",
        )
    with pytest.raises(Wal2LakeError, match=reason):
        for _ in range(3):
            site.run()
    assert site.lake("public.t") == before
    ask(site.config, ["public.t"], "resync")
    site.run()
    assert kinds(site)["p"] == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert [row[1]["b"] for row in site.lake("public.t")] == ["x", "x", "z"]


def test_keys_and_whole_rows_of_them(site: Site) -> None:
    site.sql(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE k (r int4range PRIMARY KEY, v int)",
        "CREATE TABLE w (p pair, r int4range[], at timetz)",
        "ALTER TABLE w REPLICA IDENTITY FULL",
        "INSERT INTO k SELECT int4range(i, i + 2), i FROM generate_series(1, 5) i",
        "INSERT INTO w SELECT ROW(i % 2, '')::pair, ARRAY[int4range(i, NULL)], '9:00+02' FROM generate_series(1, 5) i",
    )
    site.publish("k", "w")
    site.run()
    site.sql(
        "UPDATE k SET v = 0 WHERE r = '[2,4)'",
        "UPDATE k SET r = 'empty' WHERE r = '[3,5)'",
        "DELETE FROM k WHERE r = '[1,3)'",
        "DELETE FROM w WHERE ctid = '(0,1)'",
        "UPDATE w SET p = NULL WHERE ctid = '(0,2)'",
    )
    site.run()
    assert sorted((row[0]["lower"] or 0, row[0]["empty"], row[1]) for row in site.lake("public.k")) == [
        (0, True, 3), (2, False, 0), (4, False, 4), (5, False, 5)]  # fmt: skip
    found = sorted((row[1][0]["lower"], row[0] and row[0]["a"]) for row in site.lake("public.w"))
    assert found == [(2, None), (3, 1), (4, 0), (5, 1)]


def test_what_has_no_place_is_text_null_or_an_error_as_the_column_says(site: Site) -> None:
    columns = {"null_columns": ("public.t.n",), "error_columns": ("public.t.e",)}
    site.configure_pipeline(unrepresentable="text", **columns)
    site.sql(
        "CREATE TABLE t (id int PRIMARY KEY, s tstzrange, n date, e date, w date)",
        "INSERT INTO t VALUES (1, '[2024-01-01 00:00+00,infinity)', 'infinity', '2024-01-01', '2024-01-01')",
    )
    site.publish("t")
    site.run()
    expected = {"s": pa.string(), "n": pa.date32(), "e": pa.date32(), "w": pa.date32()}
    assert kinds(site) == {"id": pa.int32(), **expected}
    assert site.lake("public.t")[0][1:3] == ('["2024-01-01 00:00:00+00",infinity)', None)
    site.sql("INSERT INTO t VALUES (2, '(,infinity]', '-infinity', NULL, NULL)", "UPDATE t SET n = '2024-01-02'")
    site.run()
    site.sql("UPDATE t SET w = 'infinity' WHERE id = 1")
    with pytest.raises(Wal2LakeError, match=r"column w.*resync"):  # no reader's column changes its type unasked
        site.run()
    ask(site.config, ["public.t"], "resync")
    site.run()
    assert kinds(site) == {"id": pa.int32(), **expected, "w": pa.string()}
    assert site.lake("public.t")[0][4] == "infinity"
    site.sql("UPDATE t SET e = 'infinity' WHERE id = 1")
    with pytest.raises(Wal2LakeError, match=r"column e.*null_columns"):
        site.run()
