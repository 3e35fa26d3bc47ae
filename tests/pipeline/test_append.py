"""Append mode: every change is a row, none twice, whatever is run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from tests.documents.shown import on_page, ran
from tests.pipeline.conftest import Site, run_here
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import ConnectError
from wal2lake.pipeline import apply
from wal2lake.sinks.base import TargetError

pytestmark = pytest.mark.server


def operations(site: Site, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """_op and the columns, in commit order."""
    rows = site.lake_table(table).sort_by([("_commit_lsn", "ascending"), ("_lsn", "ascending")])
    return [tuple(row.values()) for row in rows.select(["_op", *columns]).to_pylist()]


def test_the_snapshot_and_every_change_are_rows(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "APPEND_TASK_ROWS", 1)  # a task per extent
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, note text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    site.publish("t")
    site.sql("INSERT INTO t VALUES (3, 'seen by the snapshot')")
    site.run()
    assert sorted(operations(site, "public.t", "id")) == [("R", 1), ("R", 2), ("R", 3)]
    site.sql("UPDATE t SET note = 'c' WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2")
    site.capture()
    site.sql("ALTER TABLE t ADD COLUMN more int DEFAULT 5", "DELETE FROM t WHERE id = 3")
    site.run()
    site.sql("TRUNCATE t", "INSERT INTO t VALUES (4, 'd', 6)")
    site.run()
    changes = [("U", 1, None), ("D", 2, None), ("U", 20, None), ("D", 3, None), ("T", None, None), ("I", 4, 6)]
    assert operations(site, "public.t", "id", "more")[3:] == changes
    site.position = 0
    site.run()
    assert operations(site, "public.t", "id", "more")[3:] == changes


def test_a_table_that_comes_in_beside_the_stream(site: Site, tmp_path: Path) -> None:
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    site.sql("CREATE TABLE public.other (id int)")
    site.publish("other")
    site.run()
    batches = site.batches(ChangeLog.open(site.config.log.path))
    site.sql("ALTER PUBLICATION pub ADD TABLE t", "UPDATE t SET n = 1 WHERE id = 1")
    site.apply(batches)
    batches.snapshots.read([table for table in batches.published() if table.name == "t"])
    site.sql("UPDATE t SET n = 2 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    site.apply(batches)
    site.synchronize(batches)
    site.sql("INSERT INTO t VALUES (3, 0)")
    site.apply(batches)
    rows = operations(site, "public.t", "id", "n")
    assert sorted(rows[:2]) == [("R", 1, 1), ("R", 2, 0)]
    assert rows[2:] == [("U", 1, 2), ("D", 2, None), ("I", 3, 0)]


def test_the_last_row_of_a_key_is_the_last_also_where_the_first_change_stands_where_the_log_begins(
    site: Site, tmp_path: Path
) -> None:
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    site.publish("t")
    site.run()
    site.sql("UPDATE t SET n = 1 WHERE id = 1")
    site.run()
    rows = site.lake_table("public.t").to_pylist()
    read = {(row["_lsn"], row["_commit_lsn"]) for row in rows if row["_op"] == "R"}
    [change] = [(row["_lsn"], row["_commit_lsn"]) for row in rows if row["_op"] == "U"]
    assert read == {(0, site.identity.start_lsn)}
    assert 0 < site.identity.start_lsn <= change[0] < change[1]


@pytest.mark.documents
def test_the_pages_query_gives_what_the_source_holds(site: Site, tmp_path: Path) -> None:
    """The SQL of docs/lake.md, by DuckDB."""
    [query] = on_page("docs/lake.md", "sql")
    site.configure(tmp_path, mode="append")
    site.sql(
        "CREATE TABLE public.orders (id int PRIMARY KEY, status text, note text)",
        "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
        "INSERT INTO orders SELECT g, 'new', repeat(g::text, 5000) FROM generate_series(1, 4) g",
    )
    site.publish("orders")
    site.run()

    def answer() -> list[Any]:
        orders = site.lake_table("public.orders")
        with duckdb.connect() as connection:
            return sorted(connection.register("orders", orders).execute(query.text).fetchall())

    site.sql(
        "UPDATE orders SET status = 'paid' WHERE id < 3",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders VALUES (2, 'again', 'n'), (7, 'new', '')",
        "DELETE FROM orders WHERE id = 4",
        "BEGIN; UPDATE orders SET status = 'a' WHERE id = 3; UPDATE orders SET status = 'b' WHERE id = 3; COMMIT",
    )
    site.run()
    assert answer() == site.source("public.orders")
    site.sql("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'new', 'x')")
    site.run()
    assert answer() == site.source("public.orders") == [(1, "new", "x")]
    ran(query)


def test_no_task_no_commit(site: Site, tmp_path: Path) -> None:
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.t (id int)")
    site.publish("t")
    site.run()
    site.run()
    assert operations(site, "public.t") == []


def test_one_tables_passing_trouble_keeps_no_other_from_the_batchs_end(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.a (id int)", "CREATE TABLE public.b (id int)", "CREATE TABLE public.c (id int)")
    site.publish("a", "b", "c")
    site.run()

    def lost(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        outcomes = run_here(spark, task, items)
        return [
            ConnectError("It is gone.") if item.batch.name == "a" else o
            for item, o in zip(items, outcomes, strict=True)
        ]

    site.sql(*(f"INSERT INTO {table} VALUES (1)" for table in "abc"))
    with monkeypatch.context() as patch, pytest.raises(ConnectError):
        patch.setattr("tests.pipeline.conftest.LocalJobs.apply", lost)
        site.run()
    assert [operations(site, f"public.{table}", "id") for table in "abc"] == [[], [("I", 1)], [("I", 1)]]
    site.sql(*(f"INSERT INTO {table} VALUES (2)" for table in "abc"))
    log = Path(f"{site.config.lake.path}/public/b/_delta_log/{1:020d}.json")
    whole = log.read_bytes()

    def damaged(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        outcomes = run_here(spark, task, items)
        log.write_bytes(b"{")
        return outcomes

    with monkeypatch.context() as patch, pytest.raises(TargetError, match=r"1 table.*public\.b"):
        patch.setattr("tests.pipeline.conftest.LocalJobs.apply", damaged)
        site.run()
    log.write_bytes(whole)
    assert [len(operations(site, f"public.{table}", "id")) for table in "abc"] == [2, 1, 2]
    site.run()
    assert [len(operations(site, f"public.{table}", "id")) for table in "abc"] == [2, 2, 2]


@pytest.mark.parametrize("mode", ["append", "mirror"])
def test_small_files_are_joined(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr("wal2lake.sinks.delta.MAINTAIN_EVERY", 4)
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 3)
    site.configure(tmp_path, mode=mode)
    site.sql("CREATE TABLE public.t (id int PRIMARY KEY)")
    site.publish("t")
    site.run()
    files = []
    for number in range(1, 12):
        if number % 3 == 0:
            site.sql(f"ALTER TABLE t ADD COLUMN more{number} int")
        site.sql(f"INSERT INTO t VALUES ({number})")
        site.run()
        files.append(len(DeltaTable(f"{site.config.lake.path}/public/t").file_uris()))
    assert max(files) <= 6
    assert files.count(1) >= 2, files
    assert sorted(site.lake_table("public.t")["id"].to_pylist()) == list(range(1, 12))
