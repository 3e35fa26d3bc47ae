"""What is wrong with one table's target stops that table, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.pipeline.conftest import Site, run_here
from wal2lake.errors import ProtocolError
from wal2lake.pipeline import apply
from wal2lake.sinks.base import SinkConflictError, TargetError
from wal2lake.tables import committed

pytestmark = pytest.mark.server


def two_tables(site: Site, columns: str = "id int") -> None:
    site.sql(f"CREATE TABLE public.a ({columns})", "ALTER TABLE a REPLICA IDENTITY FULL")
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    site.publish("a", "b")


def stops(site: Site, reason: str) -> None:
    with pytest.raises(TargetError, match=rf"1 table.*{reason}"):
        site.run()
    site.same("public.b")


def test_columns_that_no_delta_table_can_tell_apart(site: Site) -> None:
    two_tables(site, 'id int, "X" int, x int')
    stops(site, "case only")
    site.sql("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (2)")
    stops(site, "case only")


def test_a_key_without_a_place_in_the_lakes_type(site: Site) -> None:
    """The policy may make NULL of any other value, but a row must have a name."""
    site.sql("CREATE TABLE public.a (day date PRIMARY KEY)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.configure_pipeline(unrepresentable="null")
    site.run()
    site.sql("INSERT INTO a VALUES ('infinity')", "INSERT INTO b VALUES (1)")
    with pytest.raises(ProtocolError, match=r"1 table.*text_columns"):
        site.run()
    site.same("public.b")


def test_a_lake_table_of_somebody_else(site: Site) -> None:
    two_tables(site)
    write_deltalake(f"{site.config.lake.path}/public/a", pa.table({"id": [1]}))
    stops(site, "did not make")


def test_a_lake_table_that_is_no_copy_any_more(site: Site) -> None:
    two_tables(site)
    site.sql("INSERT INTO a VALUES (1), (2)")
    site.run()
    DeltaTable(f"{site.config.lake.path}/public/a").delete("id = 1")
    site.sql("DELETE FROM a", "INSERT INTO b VALUES (2)")
    stops(site, "not a copy")


def test_a_lake_table_that_is_gone(site: Site) -> None:
    two_tables(site)
    site.run()
    lake = Path(site.config.lake.path) / "public" / "a"
    lake.rename(lake.with_name("elsewhere"))
    site.sql("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (2)")
    stops(site, "lost")


def test_what_append_tasks_wrote_is_committed_only_where_they_found_the_table(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver's commit in between makes doubles of what they wrote."""
    site.configure(tmp_path, mode="append")
    two_tables(site)
    site.run()
    uri = f"{site.config.lake.path}/public/b"

    def overtaken(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        written = run_here(spark, task, items)
        if not items:
            return written
        item = items[0]
        item.target.sink().commit_files(written[0], item.batch.end - 1, item.standing.schema, item.standing.applied_lsn)
        return run_here(spark, task, items)

    site.sql("INSERT INTO b VALUES (2)")
    monkeypatch.setattr("tests.pipeline.conftest.LocalJobs.apply", overtaken)
    with pytest.raises(SinkConflictError):
        site.run()
    assert DeltaTable(uri).to_pyarrow_table()["id"].to_pylist().count(2) == 1


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_one_transaction_is_merged_in_pieces_that_memory_can_hold(
    site: Site, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    sizes: list[int] = []

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def count(changes: Sequence[Any], *rest: Any) -> Any:
            sizes.append(sum(map(len, changes)))
            return real(changes, *rest)

        return count

    for name in ("fold", "fold_rows"):
        monkeypatch.setattr(apply, name, counting(getattr(apply, name)))
    site.configure_pipeline(max_bytes_per_trigger=500)
    monkeypatch.setattr(committed, "CHUNK_ROWS", 100)
    site.sql(f"CREATE TABLE public.a (id int {key}, n int, doc text)", "ALTER TABLE a ALTER doc SET STORAGE EXTERNAL")
    site.sql("ALTER TABLE a REPLICA IDENTITY FULL")
    site.publish("a")
    site.sql("INSERT INTO a SELECT g, 0, repeat(md5(g::text), 100) FROM generate_series(1, 30) g")
    site.run()
    lake = str(site.folder_of_lake("a"))
    version = DeltaTable(lake).version()
    site.sql(
        "BEGIN; INSERT INTO a SELECT g, 1, 'short' FROM generate_series(100, 899) g; UPDATE a SET n = 2 WHERE id < 150;"
        " UPDATE a SET id = -id WHERE id % 7 = 0; DELETE FROM a WHERE id % 5 = 0;"
        " INSERT INTO a VALUES (-1, 0, ''); COMMIT"
    )
    site.run()
    site.same("public.a")
    assert len(sizes) >= 8
    assert max(sizes) == 100
    assert DeltaTable(lake).version() == version + 1
    site.sql("BEGIN; ALTER TABLE a ADD m int DEFAULT 7; UPDATE a SET n = 3; COMMIT")
    site.sql("BEGIN; UPDATE a SET n = 4; ALTER TABLE a ADD k int DEFAULT 8; INSERT INTO a VALUES (-2); COMMIT")
    site.run()
    site.same("public.a")
    assert max(sizes) == 100, "several schema versions are no reason for one piece"
