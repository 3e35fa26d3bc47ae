"""What a column became when its table was read it stays, until somebody has the table read anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.pipeline.conftest import Site
from wal2lake.columnar.cells import ShapeError
from wal2lake.columnar.type_table import EDITION, INTERVAL
from wal2lake.errors import Wal2LakeError
from wal2lake.tables import column_types
from wal2lake.tables.asking import ask
from wal2lake.tables.column_types import would_gain
from wal2lake.tables.reread import key_texts

pytestmark = pytest.mark.server

TAGS = "CREATE TABLE t (id int PRIMARY KEY, tags text[], days date[])"
ROWS = "INSERT INTO t VALUES (1, '{a,\"b c\",NULL}', '{2024-02-29}'), (2, '{}', NULL)"
LISTS = {"id": pa.int32(), "tags": pa.list_(pa.string()), "days": pa.list_(pa.date32())}
TEXTS = {"id": pa.int32(), "tags": pa.string(), "days": pa.string()}


@contextmanager
def of_old(site: Site) -> Iterator[None]:
    """In the block the type table's first edition is the newest; then the tables' documents say nothing of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_types, "EDITION", 1)
        yield
    folder = site.folder("public.t")
    document = folder.read().to_document()
    assert document.pop("types") is not None
    folder.documents.write_state(document)


def kinds(site: Site) -> dict[str, pa.DataType]:
    schema = site.lake_table("public.t").schema
    return dict(zip(schema.names, schema.types, strict=True))


def texts(site: Site) -> list[tuple[object, ...]]:
    """The source's rows as they land where arrays are text."""
    return site.source("(SELECT id, tags::text, days::text FROM t)")


def test_arrays_are_lists_in_a_table_that_is_read_now(site: Site) -> None:
    site.sql(TAGS, ROWS)
    site.publish("t")
    site.run()
    assert kinds(site) == LISTS
    site.sql(
        "UPDATE t SET tags = tags || '{NULL,x}'::text[] WHERE id = 1",
        "INSERT INTO t VALUES (3, NULL, '{}'), (4, '{\"\"}', '{NULL}')",
        "DELETE FROM t WHERE id = 2",
        "ALTER TABLE t ADD COLUMN n int[] DEFAULT '{1,2}'",
        "INSERT INTO t VALUES (5, '{a}', '{}', '{3}')",
    )
    site.run()
    site.same("public.t")
    assert site.state("public.t").types == replace(site.state("public.t").types, edition=EDITION)


def test_an_existing_table_keeps_its_types_until_it_is_asked_for_anew(site: Site) -> None:
    site.configure_pipeline(on_unfollowable="resync")
    site.sql(TAGS, ROWS)
    site.publish("t")
    with of_old(site):
        site.run()
    assert kinds(site) == TEXTS
    assert would_gain(site.config) == ["public.t.tags", "public.t.days"]
    site.configure_pipeline(text_columns=("public.t.days",))
    assert would_gain(site.config) == ["public.t.tags"]
    site.configure_pipeline(text_columns=())
    site.sql("INSERT INTO t VALUES (3, '{x}', '{}')", "UPDATE t SET days = '{2024-01-01}' WHERE id = 2")
    site.run()
    assert (kinds(site), site.lake("public.t")) == (TEXTS, texts(site))
    site.sql("ALTER TABLE t RENAME COLUMN days TO dates", "ALTER TABLE t RENAME COLUMN dates TO days")
    site.sql("ALTER TABLE t ALTER COLUMN tags TYPE varchar[]", "UPDATE t SET tags = '{y}' WHERE id = 1")
    plan = site.state("public.t").plan
    site.run()  # nobody asked for this read
    assert site.state("public.t").plan != plan
    assert (kinds(site), site.lake("public.t")) == (TEXTS, texts(site))
    site.sql("ALTER TABLE t ADD COLUMN n int[]", "UPDATE t SET n = '{1}' WHERE id = 1")
    site.run()
    assert kinds(site) == TEXTS | {"n": pa.string()}
    ask(site.config, ["public.t"], "resync")
    site.run()
    assert kinds(site) == LISTS | {"n": pa.list_(pa.int32())}
    site.same("public.t")
    assert would_gain(site.config) == []


def test_a_new_log_beside_a_lake_keeps_what_is_text_there(site: Site) -> None:
    site.sql(TAGS, ROWS)
    site.publish("t")
    with of_old(site):
        site.run()
    site.begin_new_log()
    site.sql("INSERT INTO t VALUES (3, '{x}', '{}')")
    site.run()
    site.sql("INSERT INTO t VALUES (4, '{y}', '{}')")
    site.run()
    assert (kinds(site), site.lake("public.t")) == (TEXTS, texts(site))


def test_arrays_of_several_shapes_land_as_text(site: Site) -> None:
    site.sql(TAGS, ROWS, "INSERT INTO t VALUES (3, '{{a,b},{c,d}}', '{2024-01-01}')")
    site.publish("t")
    site.run()
    assert kinds(site) == {**LISTS, "tags": pa.string()}
    site.sql("INSERT INTO t VALUES (4, '[0:1]={a,b}', NULL)", "UPDATE t SET tags = '{z}' WHERE id = 1")
    site.run()
    assert [row[1] for row in site.lake("public.t")] == ["{z}", "{}", "{{a,b},{c,d}}", "[0:1]={a,b}"]


def test_a_shape_that_comes_later_leaves_the_table_out_until_it_is_asked_for(site: Site) -> None:
    site.configure_pipeline(on_unfollowable="resync", unrepresentable="null")
    site.sql(TAGS, ROWS)
    site.publish("t")
    site.run()
    site.sql("INSERT INTO t VALUES (3, '{{a,b},{c,d}}', NULL)")
    with pytest.raises(Wal2LakeError, match=r"tags.*wal2lake resync") as raised:
        site.run()
    assert isinstance(raised.value, ShapeError)
    assert kinds(site) == LISTS
    ask(site.config, ["public.t"], "resync")
    site.run()
    assert kinds(site) == {**LISTS, "tags": pa.string()}
    site.sql("INSERT INTO t VALUES (4, '{{{x}}}', '{}')")
    site.run()
    assert site.lake("public.t")[-1][1] == "{{{x}}}"


def test_declared_dimensions_are_levels_of_lists(site: Site) -> None:
    site.sql("CREATE TABLE t (id int PRIMARY KEY, m int[][])", "INSERT INTO t VALUES (1, '{{1,2},{3,NULL}}')")
    site.publish("t")
    site.run()
    site.sql("INSERT INTO t VALUES (2, '{{5}}'), (3, '{}'), (4, NULL)")
    site.run()
    assert kinds(site)["m"] == pa.list_(pa.list_(pa.int32()))
    site.same("public.t")


def test_numerics_become_what_the_policy_said_when_they_were_read(site: Site) -> None:
    site.configure_pipeline(unbounded_numeric="decimal(38,9)")
    site.sql(
        "CREATE DOMAIN cents AS numeric(10,2)",
        "CREATE DOMAIN fees AS cents CHECK (VALUE > 0)",
        "CREATE TABLE t (id int PRIMARY KEY, n numeric, c cents, f fees, l numeric[])",
        "INSERT INTO t VALUES (1, 1.50, 12.34, 0.01, '{1.5,NULL}')",
    )
    site.publish("t")
    site.run()
    decimals = {"c": pa.decimal128(10, 2), "f": pa.decimal128(10, 2)}
    wide = pa.decimal128(38, 9)
    assert kinds(site) == {"id": pa.int32(), "n": wide, **decimals, "l": pa.list_(wide)}
    site.configure_pipeline(unbounded_numeric="double")
    site.sql("INSERT INTO t VALUES (2, -0.000000001, NULL, 5, '{}')", "UPDATE t SET c = 1 WHERE id = 1")
    site.run()
    assert kinds(site)["n"] == wide
    site.same("public.t")
    ask(site.config, ["public.t"], "resync")
    site.run()
    assert kinds(site) == {"id": pa.int32(), "n": pa.float64(), **decimals, "l": pa.list_(pa.float64())}


def test_intervals_are_structs_as_values_and_in_keys(site: Site) -> None:
    site.sql("CREATE TABLE t (i interval PRIMARY KEY, l interval[])", "INSERT INTO t VALUES ('1 mon', '{1 day,NULL}')")
    site.publish("t")
    site.run()
    site.sql("INSERT INTO t VALUES ('-1 day +01:00', NULL), ('1 s', '{}')")
    site.sql("UPDATE t SET i = '2 mons' WHERE i = '1 mon'")
    site.sql("DELETE FROM t WHERE i = '1 s'", "UPDATE t SET l = '{}' WHERE l IS NULL")
    site.run()
    assert [tuple(row[0].values()) for row in site.lake("public.t")] == [(0, -1, 3_600_000_000), (2, 0, 0)]
    assert [row[1] for row in site.lake("public.t")] == [[], [{"months": 0, "days": 1, "microseconds": 0}, None]]


def test_rows_are_named_by_arrays(site: Site) -> None:
    """As a key, and as a part of the whole row where there is none; unchanged TOAST in them."""
    site.sql(
        "CREATE TABLE k (a int[], b text[] STORAGE EXTERNAL, c real[], PRIMARY KEY (a))",
        "CREATE TABLE w (a int[], c real[])",
        "ALTER TABLE w REPLICA IDENTITY FULL",
        "INSERT INTO k SELECT ARRAY[i, NULL], ARRAY[repeat('x', 5000), i::text], '{NaN,-0}'"
        " FROM generate_series(1, 9) i",
        "INSERT INTO w SELECT ARRAY[i % 3], '{0,-0,NaN}' FROM generate_series(1, 9) i",
    )
    site.publish("k", "w")
    site.run()
    site.sql(
        "UPDATE k SET c = '{1.5}' WHERE a = '{2,NULL}'",
        "UPDATE k SET a = '{20}' WHERE a = '{3,NULL}'",
        "DELETE FROM k WHERE a = '{4,NULL}'",
        "DELETE FROM w WHERE ctid = '(0,1)'",
        "UPDATE w SET c = '{0,0,NaN}' WHERE ctid = '(0,2)'",
        "INSERT INTO w VALUES ('{}', NULL), ('{NULL}', '{}')",
    )
    site.run()
    for table in ("public.k", "public.w"):  # NaN is not equal to itself, but reads the same
        assert repr(site.lake(table)) == repr(site.source(table))


def test_a_key_of_arrays_is_asked_for_by_its_text(site: Site) -> None:
    values = [["a,b", 'q"\\', None, "", "NULL"], [], None]
    (first, second) = key_texts(pa.table({"k": pa.array(values[:2], pa.list_(pa.string()))}))
    for text, value in ((first["k"], values[0]), (second["k"], values[1])):
        assert site.connection.execute("SELECT %s::text[]", [text]).fetchone() == (value,)
    interval = pa.array([{"months": -14, "days": 3, "microseconds": -1}], INTERVAL)
    (text,) = key_texts(pa.table({"k": interval}))
    query = "SELECT %s::interval = '-14 mons 3 days -00:00:00.000001'::interval"
    assert site.connection.execute(query, [text["k"]]).fetchone() == (True,)
    nested = pa.table({"k": pa.array([[[b"\x00\xff"], [None]]], pa.list_(pa.list_(pa.binary())))})
    found = site.connection.execute("SELECT %s::bytea[]", [key_texts(nested)[0]["k"]]).fetchone()
    assert found == ([[b"\x00\xff"], [None]],)
