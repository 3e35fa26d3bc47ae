"""After DDL the lake holds what the source holds, or the table stops with the reason: never a guess."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import Site
from wal2lake.errors import SchemaChangeError, UnrepresentableError

pytestmark = pytest.mark.server


def one_table(site: Site, columns: str, *rows: str, published: str = "t") -> None:
    site.sql(f"CREATE TABLE public.t ({columns})", *(f"INSERT INTO t VALUES ({row})" for row in rows))
    site.publish(published)
    site.run()
    site.same("public.t") if published == "t" else None


def stops(site: Site, reason: str) -> None:
    with pytest.raises((SchemaChangeError, UnrepresentableError), match=reason):
        site.run()
    assert site.state("public.t").quarantine is not None


@pytest.mark.parametrize("between", ["", "INSERT INTO t VALUES (3)"])
def test_the_last_column_made_anew_looks_as_before_and_is_another(site: Site, between: str) -> None:
    one_table(site, "id int PRIMARY KEY, note text", "1, 'a'")
    site.sql("INSERT INTO t VALUES (2, 'b')")
    site.run()
    site.sql("ALTER TABLE t DROP COLUMN note", *filter(None, [between]))
    site.sql("ALTER TABLE t ADD COLUMN note text", "INSERT INTO t VALUES (4, 'd')")
    stops(site, "another of the same name")


def each_alone(sent: list[bytes]) -> list[list[bytes]]:
    return [[message] for message in sent]


@pytest.mark.parametrize("cut", [Site.cut, each_alone], ids=["one segment", "a segment each"])
def test_the_last_column_made_anew_while_capture_runs_on(site: Site, monkeypatch: pytest.MonkeyPatch, cut: Any) -> None:
    """The server announces the table again, in the very words that it used before in this session."""
    monkeypatch.setattr(site, "cut", cut)
    one_table(site, "id int PRIMARY KEY, note text", "1, 'a'")
    with site.one_session():
        site.sql("INSERT INTO t VALUES (2, 'b')")
        site.run()
        site.sql("ALTER TABLE t DROP COLUMN note, ADD COLUMN note text", "INSERT INTO t VALUES (4, 'd')")
        stops(site, "another of the same name")


def test_a_table_that_is_announced_again_and_has_not_changed_goes_on(site: Site) -> None:
    one_table(site, "id int PRIMARY KEY, note text", "1, 'a'")
    with site.one_session():
        for number, invalidates in enumerate(("SELECT", "ANALYZE t", "CREATE INDEX ON t (note)", "VACUUM FULL t"), 2):
            site.sql(invalidates, f"INSERT INTO t VALUES ({number}, 'b')")
            site.run()
            site.same("public.t")


def test_a_column_that_was_there_and_is_published_later_stops(site: Site) -> None:
    one_table(site, "id int PRIMARY KEY, a text, b text", "1, 'a', 'b'", published="t (id, a)")
    site.sql("ALTER PUBLICATION pub SET TABLE t", "INSERT INTO t VALUES (2, 'a', 'b')")
    stops(site, "what is published of it changed")


@pytest.mark.parametrize("identity", ["FULL", "NOTHING"])
@pytest.mark.parametrize("anew", ["", ", ADD PRIMARY KEY (id, part)", ", ADD PRIMARY KEY (id) DEFERRABLE"])
def test_a_key_that_names_one_row_no_more_stops(site: Site, identity: str, anew: str) -> None:
    """Such a table is announced without its key, and two rows with one key would become one."""
    one_table(site, "id int PRIMARY KEY, part int NOT NULL, note text", "1, 1, 'a'")
    site.sql(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    with site.one_session():
        site.sql("INSERT INTO t VALUES (2, 1, 'b')")
        site.run()
        site.sql(f"ALTER TABLE t DROP CONSTRAINT t_pkey{anew}")
        site.sql(f"INSERT INTO t VALUES ({3 if 'DEFERRABLE' in anew else 2}, 2, 'c')")
        stops(site, "several rows")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD UNIQUE (part)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD UNIQUE (id), ALTER id SET NOT NULL",
        "ALTER TABLE t RENAME CONSTRAINT t_pkey TO other",
        "REINDEX TABLE t",
    ],
)
def test_a_key_under_full_identity_that_still_names_one_row_is_followed(site: Site, statement: str) -> None:
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, part int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    site.publish("t")
    site.run()
    with site.one_session():
        site.sql("INSERT INTO t VALUES (1, 1)")
        site.run()
        site.sql(statement, "INSERT INTO t VALUES (2, 2)", "UPDATE t SET part = 3 WHERE id = 1")
        site.run()
        site.same("public.t")


def test_what_became_of_a_key_after_the_batch_says_nothing_about_it(site: Site) -> None:
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, n int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    site.publish("t")
    site.run()
    site.sql("INSERT INTO t VALUES (1, 1)", "DROP TABLE t")
    site.run()
    assert site.lake("public.t") == [(1, 1)]


def test_a_generated_column_that_is_published_later_stops(site: Site) -> None:
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) STORED)")
    site.sql("INSERT INTO t VALUES (1)")
    site.publish("t")
    site.run()
    site.sql("ALTER PUBLICATION pub SET (publish_generated_columns = stored)", "INSERT INTO t VALUES (2)")
    stops(site, "what is published of it changed")


def test_a_column_that_was_not_published_for_a_while_stops(site: Site) -> None:
    one_table(site, "id int PRIMARY KEY, a text, b text", "1, 'a', 'b'")
    site.sql("ALTER PUBLICATION pub SET TABLE t (id, a)", "UPDATE t SET a = 'x', b = 'unseen'")
    site.sql("ALTER PUBLICATION pub SET TABLE t", "INSERT INTO t VALUES (2, 'a', 'b')")
    stops(site, "what is published of it changed")


def test_a_batch_of_versions_that_is_tried_again_is_followed_again(site: Site) -> None:
    """A column lapses in it, so its first version would be refused if it were taken for a later one."""
    one_table(site, "id int PRIMARY KEY, a text, at date", "1, 'a', NULL")
    position = site.position
    site.sql("INSERT INTO t VALUES (2, 'b', 'infinity')", "ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (3)")
    stops(site, "no place|representable|infinity")
    site.sql("INSERT INTO t VALUES (4)")
    site.configure_pipeline(unrepresentable="null")
    site.run()
    site.position = position
    site.run()
    assert [row[0] for row in site.lake("public.t")] == [1, 2, 3, 4]


def test_a_column_added_and_renamed_before_anybody_looked_stops(site: Site) -> None:
    one_table(site, "id int PRIMARY KEY", "1")
    site.sql("ALTER TABLE t ADD COLUMN x int", "INSERT INTO t VALUES (2, 2)", "ALTER TABLE t RENAME COLUMN x TO y")
    site.sql("INSERT INTO t VALUES (3, 3)")
    stops(site, "which is which")


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("json", "jsonb", """'{"bb":1,"a":2}'"""),
        ("char(3)", "char(5)", "'a'"),
        ("timestamp", "timestamp(0)", "'2024-01-01 00:00:00.7'"),
        ("float8", "float4", "0.1"),
        ("numeric", "numeric(50, 1)", "0.25"),
        ("text", "varchar(3)", "'a    '"),
        ("int", "bigint", "7"),
        ("bigint", "int", "7"),
        ("float4", "float8", "0.5"),
        ("numeric(7, 2)", "numeric(5, 2)", "1.25"),
    ],
)
def test_a_type_change_that_rewrites_values_stops(site: Site, before: str, after: str, value: str) -> None:
    site.sql(f"CREATE TABLE public.t (id int PRIMARY KEY, x {before})", f"INSERT INTO t VALUES (1, {value})")
    site.publish("t")
    site.run()
    site.sql(f"ALTER TABLE t ALTER x TYPE {after}", f"INSERT INTO t VALUES (2, {value})")
    stops(site, "was rewritten with other columns or types")


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("varchar(10)", "text", "'a'"),
        ("varchar(10)", "varchar(20)", "'a'"),
        ("text", "varchar", "'a'"),
        ("numeric(5, 2)", "numeric(7, 2)", "1.25"),
        ("timestamp(3)", "timestamp", "'2024-01-01 00:00:00.125'"),
    ],
)
def test_a_type_change_that_keeps_values_is_followed(site: Site, before: str, after: str, value: str) -> None:
    one_table(site, f"id int PRIMARY KEY, x {before}", f"1, {value}")
    site.sql(f"ALTER TABLE t ALTER x TYPE {after}", f"INSERT INTO t VALUES (2, {value})")
    site.run()
    site.same("public.t")
    site.sql(f"INSERT INTO t VALUES (3, {value})", "DELETE FROM t WHERE id = 1")
    site.run()
    site.same("public.t")


@pytest.mark.parametrize(
    ("default", "later"), [("random()", ()), ("0.5", ("VACUUM FULL t",))], ids=["volatile", "rewritten later"]
)
def test_values_that_a_rewrite_gave_older_rows_stop_the_table(site: Site, default: str, later: tuple[str, ...]) -> None:
    """Also when the default is gone by the time that anybody looks, as migration tools have it."""
    one_table(site, "id int PRIMARY KEY", "1")
    site.sql(f"ALTER TABLE t ADD COLUMN x float8 NOT NULL DEFAULT {default}", "ALTER TABLE t ALTER x DROP DEFAULT")
    site.sql(*later, "INSERT INTO t VALUES (2, 1)")
    stops(site, "rewritten")


def test_a_partitioned_tables_rows_get_the_fast_default_of_their_partitions(site: Site) -> None:
    site.sql(
        "CREATE TABLE public.t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "INSERT INTO t VALUES (1), (150)",
    )
    site.publish("t")
    site.sql("ALTER PUBLICATION pub SET (publish_via_partition_root = true)")
    site.run()
    site.sql("CREATE TABLE t3 PARTITION OF t FOR VALUES FROM (200) TO (300)", "UPDATE t SET id = 151 WHERE id = 1")
    site.sql("ALTER TABLE t ADD COLUMN price int NOT NULL DEFAULT 7", "INSERT INTO t VALUES (201, 8)")
    site.run()
    site.same("public.t")
