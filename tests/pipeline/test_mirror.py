"""A real server's tables into Delta and kept there: whatever happens to a row, source and lake hold the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from psycopg.conninfo import make_conninfo

from tests.pipeline.conftest import Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.lakes import table_uri
from wal2lake.tables.asking import ask

pytestmark = pytest.mark.server

LONG = "(SELECT string_agg(md5(i::text || {seed}), '') FROM generate_series(1, 300) i)"


def long_text(seed: str) -> str:
    """SQL for a value that is TOASTed and does not compress."""
    return LONG.format(seed=seed)


@pytest.mark.spark
def test_the_whole_pipeline_in_spark(spark_site: Site, tmp_path: Path) -> None:
    """With a password that is another one in each run: driver and tasks ask the command for it."""
    spark_site.config = replace(spark_site.config, log=replace(spark_site.config.log, retention_seconds=0.0))
    role, capture = f"rotating_{spark_site.name}", spark_site.capture
    spark_site.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    login = {"dsn": make_conninfo(spark_site.dsn, host="127.0.0.1", user=role)}
    command = ("cat", str(tmp_path / "password"))
    source = replace(spark_site.config.source, **login, password_command=command)
    spark_site.config = replace(spark_site.config, source=source)

    def rotate_and_capture() -> None:
        (tmp_path / "password").write_text(password := uuid4().hex)
        spark_site.sql(f"ALTER ROLE {role} PASSWORD '{password}'")
        capture()

    spark_site.capture = rotate_and_capture  # type: ignore[method-assign]
    every_kind_of_change(spark_site)
    assert {table["state"] for table in spark_site.status()["tables"].values()} == {"streaming"}
    assert spark_site.status()["lag_bytes"] == 0
    log = ChangeLog.open(spark_site.config.log.path)
    assert log.segments[0].seq > 0, "what short runs applied was never removed"
    spark_site.sql(f"DROP ROLE {role}")


def test_every_kind_of_change_of_every_kind_of_table(site: Site) -> None:
    every_kind_of_change(site)


def every_kind_of_change(site: Site) -> None:
    site.sql(
        "CREATE SCHEMA shop",
        "CREATE SCHEMA depot",
        "CREATE TABLE shop.item (region text, id int, note text, big text, PRIMARY KEY (region, id))",
        "CREATE TABLE depot.item (id int PRIMARY KEY, amount numeric(10, 2), at timestamptz)",
        "CREATE TABLE shop.event (kind text, payload text)",
        "CREATE TABLE shop.pair (a int, b text)",
        "ALTER TABLE shop.pair REPLICA IDENTITY FULL",
        f"INSERT INTO shop.item SELECT 'north', i, 'old', {long_text('i.i')} FROM generate_series(1, 40) i (i)",
        "INSERT INTO depot.item SELECT i, i / 4.0, '2024-02-29 12:00:00+02' FROM generate_series(1, 20) i",
        "INSERT INTO shop.event VALUES ('a', 'before'), ('a', 'before'), (NULL, '')",
        "INSERT INTO shop.pair VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    )
    tables = ("shop.item", "depot.item", "shop.event", "shop.pair")
    site.publish(*tables)
    site.sql("INSERT INTO depot.item VALUES (21, 1, now())")  # in the log and in the snapshot
    site.run()
    site.same(*tables)
    site.sql(
        "UPDATE shop.item SET note = 'new' WHERE id < 10",
        "UPDATE shop.item SET id = id + 100 WHERE id BETWEEN 10 AND 12",
        "UPDATE shop.item SET id = 200, note = 'moved twice' WHERE id = 110",
        f"UPDATE shop.item SET big = {long_text('7')} WHERE id = 20",
        "DELETE FROM shop.item WHERE id = 30; INSERT INTO shop.item VALUES ('north', 30, 'again', NULL)",
        "BEGIN; INSERT INTO depot.item VALUES (99, 0, NULL); ROLLBACK",
        "BEGIN; TRUNCATE depot.item; INSERT INTO depot.item VALUES (5, 5, NULL); COMMIT",
        "INSERT INTO shop.event VALUES ('b', 'after'), ('a', 'before')",
        "DELETE FROM shop.pair WHERE ctid = '(0,1)'; UPDATE shop.pair SET b = 'y' WHERE a = 2",
    )
    site.run()
    site.same(*tables)
    site.run()
    site.same(*tables)


def test_columns_that_are_added_with_and_without_default_and_dropped(site: Site) -> None:
    site.sql(
        "CREATE TABLE public.t (id int PRIMARY KEY, note text)",
        "INSERT INTO t SELECT i, 'n' || i FROM generate_series(1, 10) i",
    )
    site.publish("t")
    site.run()
    site.sql(
        "UPDATE t SET note = 'before' WHERE id = 1",
        "ALTER TABLE t ADD COLUMN price numeric(8, 2) DEFAULT 9.5, ADD COLUMN tag text",
        "INSERT INTO t VALUES (11, 'k', 1, 'x'), (12, 'k', NULL, NULL)",
        "UPDATE t SET tag = 'y' WHERE id = 2",
    )
    site.run()
    site.same("public.t")
    site.sql("ALTER TABLE t DROP COLUMN note", "INSERT INTO t VALUES (13, 2, 'z')")
    site.run()
    columns = ["id", "price", "tag"]
    lake = sorted(tuple(row.values()) for row in site.lake_table("public.t").select(columns).to_pylist())
    assert lake == sorted(site.source("t"))


def test_a_rename_stops_that_table_until_its_cause_is_gone_and_no_other(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, x text)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    site.sql("INSERT INTO a VALUES (1, 'kept')")
    site.run()
    site.sql("ALTER TABLE a RENAME COLUMN x TO y", "INSERT INTO a VALUES (2, 'waits')", "INSERT INTO b VALUES (1)")
    with pytest.raises(Exception, match="renamed") as failure:
        site.run()
    assert type(failure.value).__name__ == "SchemaChangeError"
    site.same("public.b")
    assert site.lake("public.a") == [(1, "kept")]
    assert site.state("public.a").quarantine is not None
    site.sql("ALTER TABLE a RENAME COLUMN y TO x", "INSERT INTO a VALUES (3, 'after')")
    with pytest.raises(Exception, match="1 table"):
        site.run()


def test_a_value_without_a_place_stops_its_table_until_the_policy_says_null(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, at date)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    site.sql("INSERT INTO a VALUES (1, 'infinity')", "INSERT INTO b VALUES (1)")
    with pytest.raises(Exception, match="1 table"):
        site.run()
    site.same("public.b")
    site.sql("INSERT INTO a VALUES (2, '2024-01-01')", "INSERT INTO b VALUES (2)")
    with pytest.raises(Exception, match="1 table"):
        site.run()
    site.same("public.b")
    site.configure_pipeline(unrepresentable="null")
    site.run()
    assert [row[0] for row in site.lake("public.a")] == [1, 2]
    assert site.state("public.a").quarantine is None


def test_the_cures_of_a_value_without_a_place_are_what_its_error_says(site: Site) -> None:
    """null_columns and a new start; or text_columns, a new start and a resync."""
    site.sql(
        "CREATE TABLE public.a (id int PRIMARY KEY, at date)", "CREATE TABLE public.b (id int PRIMARY KEY, at date)"
    )
    site.publish("a", "b")
    site.run()
    site.sql("INSERT INTO a VALUES (1, 'infinity')", "INSERT INTO b VALUES (1, 'infinity')")
    with pytest.raises(Exception, match=r"2 table.*pipeline\.null_columns.*start.*text_columns.*resync"):
        site.run()
    site.configure_pipeline(null_columns=("public.a.at",), text_columns=("public.b.at",))
    ask(site.config, ["public.b"], "resync")
    site.run()
    assert (site.lake("public.a"), site.lake("public.b")) == ([(1, None)], [(1, "infinity")])
    assert all(site.state(name).quarantine is None for name in ("public.a", "public.b"))


def test_a_table_that_is_published_later_is_read_before_its_changes(site: Site) -> None:
    site.sql(
        "CREATE TABLE public.a (id int PRIMARY KEY)",
        "CREATE TABLE public.late (id int PRIMARY KEY, n int)",
        "INSERT INTO late SELECT i, 0 FROM generate_series(1, 5) i",
    )
    site.publish("a")
    site.run()
    site.sql("ALTER PUBLICATION pub ADD TABLE late", "UPDATE late SET n = 1 WHERE id = 2", "INSERT INTO a VALUES (1)")
    site.run()
    site.sql("UPDATE late SET n = 2 WHERE id = 3")
    site.run()
    site.same("public.a", "public.late")


def test_a_batch_that_is_run_again_changes_nothing(site: Site) -> None:
    site.sql("CREATE TABLE public.pair (a int)", "ALTER TABLE pair REPLICA IDENTITY FULL")
    site.publish("pair")
    site.sql("INSERT INTO pair VALUES (1), (1)")
    site.run()
    site.sql("INSERT INTO pair VALUES (1)")
    site.run()
    uri = f"{site.config.lake.path}/public/pair"
    version = DeltaTable(uri).version()
    site.position = 0
    site.run()
    assert DeltaTable(uri).version() == version
    site.same("public.pair")


def test_names_of_any_script_and_of_full_length(site: Site) -> None:
    """63 bytes is all that PostgreSQL takes, and 255 what a file name may have."""
    schema, table, column = "схема-данных." * 2 + "x" * 13, "таблица %41~/" * 3, 'Столбец. %41/~`"'
    name = f'"{schema}"."{table}"'
    quoted = column.replace('"', '""')
    site.sql(f'CREATE SCHEMA "{schema}"', f'CREATE TABLE {name} (id int PRIMARY KEY, "{quoted}" text)')
    site.publish(name)
    site.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    site.run()
    site.sql(f"INSERT INTO {name} VALUES (2, 'b')", f"UPDATE {name} SET id = 3 WHERE id = 1")
    site.run()
    rows = DeltaTable(table_uri(site.config.lake.path, schema, table)).to_pyarrow_table()
    assert sorted(tuple(row.items()) for row in rows.to_pylist()) == [
        (("id", 2), (column, "b")),
        (("id", 3), (column, "a")),
    ]
