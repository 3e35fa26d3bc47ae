"""Append mode: every change is a row, none twice, whatever is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import Site
from wal2lake.spark import apply

pytestmark = pytest.mark.server


def operations(site: Site, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """_op and the columns, in commit order."""
    rows = site.lake_table(table).sort_by([("_commit_lsn", "ascending"), ("_lsn", "ascending")])
    return [tuple(row.values()) for row in rows.select(["_op", *columns]).to_pylist()]


def test_the_snapshot_and_every_change_are_rows(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "_APPEND_TASK_ROWS", 1)  # a task per extent
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


def test_no_task_no_commit(site: Site, tmp_path: Path) -> None:
    site.configure(tmp_path, mode="append")
    site.sql("CREATE TABLE public.t (id int)")
    site.publish("t")
    site.run()
    site.run()
    assert operations(site, "public.t") == []
