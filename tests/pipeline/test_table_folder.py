"""The files of a table: what is done stays done, what an abandoned plan leaves behind never counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wal2lake.errors import SchemaChangeError
from wal2lake.spark.table_folder import Chunk, Column, Done, DoneChunk, Followed, SnapshotPlan, TableFolder

PLAN = SnapshotPlan(
    "p1", 7, "d", "shape", "heap", "digest", ("id",), (Column("id", 1, 20, -1, 20, True),),
    (Chunk(0, 0, 5), Chunk(1, 5, None)),
)  # fmt: skip
CHUNK = DoneChunk(0, 10, {"name": "s1"}, [{"path": "a.parquet"}])


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    return TableFolder(tmp_path, "shop", "item")


def test_nothing_is_there_at_first(folder: TableFolder) -> None:
    assert folder.plan() is None
    assert folder.done() is None
    assert folder.quarantine() is None
    assert folder.converging_until() == 0
    assert folder.count_chunks() == 0


def test_a_plan_and_its_chunks_come_back_as_written(folder: TableFolder) -> None:
    folder.begin(PLAN)
    assert folder.finish_chunk("p1", CHUNK)
    assert folder.plan() == PLAN
    assert folder.chunks("p1") == {0: CHUNK}
    assert folder.followed() == Followed({"id": 1}, ("digest",), {"id": (20, -1)})


def test_the_first_to_finish_a_chunk_is_the_one_that_counts(folder: TableFolder) -> None:
    folder.begin(PLAN)
    assert folder.finish_chunk("p1", CHUNK)
    assert not folder.finish_chunk("p1", DoneChunk(0, 99, {"name": "s2"}, []))
    assert folder.chunks("p1") == {0: CHUNK}
    assert sorted(path.name for path in folder.path.glob(".*")) == []


def test_a_new_plan_forgets_the_old_ones_chunks_even_those_that_come_late(folder: TableFolder) -> None:
    folder.begin(PLAN)
    folder.finish_chunk("p1", CHUNK)
    folder.finish(Done("p1", 5, []))
    folder.begin(replace(PLAN, plan_id="p2", shape="other"))
    folder.finish_chunk("p1", DoneChunk(1, 1, {}, []))
    assert folder.chunks("p2") == {}
    assert folder.done() is None


def test_quarantine_is_kept_until_it_is_lifted(folder: TableFolder) -> None:
    folder.set_quarantine(SchemaChangeError("The column changed its type."), 42)
    kept = folder.quarantine()
    assert kept is not None
    assert (kept.error, kept.reason, kept.lsn) == ("SchemaChangeError", "The column changed its type.", 42)
    folder.lift_quarantine()
    assert folder.quarantine() is None


def test_convergence_only_moves_forward(folder: TableFolder) -> None:
    folder.begin(PLAN)
    folder.converge_until(50)
    folder.converge_until(40)
    assert folder.converging_until() == 50


def test_names_with_dots_and_slashes_do_not_collide(tmp_path: Path) -> None:
    paths = {TableFolder(tmp_path, *names).path for names in (("a.b", "c"), ("a", "b.c"), ("a", "b/c"))}
    assert len(paths) == 3
    assert {path.parent for path in paths} == {tmp_path}
