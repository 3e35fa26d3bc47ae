"""A table's document and its chunks: what is done stays done, what an abandoned plan leaves behind never counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wal2lake.changelog.documents import write_document
from wal2lake.errors import LogCorruptError
from wal2lake.lsn import LSN
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.sinks.base import FileAction
from wal2lake.tables.state import (
    Chunk,
    DoneChunk,
    Followed,
    Landed,
    PlannedColumn,
    Quarantine,
    SnapshotPlan,
    TableState,
)
from wal2lake.tables.table_folder import TableFolder, known_tables

PLAN = SnapshotPlan(
    "p1", 7, "d", "shape", "heap", "digest", ("id",), (PlannedColumn("id", 1, 20, -1, 20, True),),
    (Chunk(0, 0, 5), Chunk(1, 5, None)),
)  # fmt: skip
SNAPSHOT = SnapshotIdentity("00000003-00000002-1", 700, 705, (701,), LSN(0x16B3748))
CHUNK = DoneChunk(0, 10, SNAPSHOT, (FileAction("a.parquet", 9, 1, 10, {"id": 0}, {"id": 1}, {"id": 10}),))
FOLLOWED = Followed({"id": 1}, ("digest",), {"id": (20, -1)})


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    return TableFolder(tmp_path, "shop", "item")


def test_nothing_is_there_at_first(folder: TableFolder) -> None:
    assert folder.read() == TableState()
    assert not folder.path.exists()
    assert folder.chunks("p1") == {}


@pytest.mark.parametrize(
    "state",
    [
        TableState(),
        TableState("init", LSN(5)),
        TableState("data_copy", None, PLAN, followed=Followed.of(PLAN)),
        TableState("catch_up", LSN(77), PLAN, Landed("p1", 60, (SNAPSHOT, SNAPSHOT), 70), FOLLOWED),
        TableState("ready", None, PLAN, Landed("p1", 60, (SNAPSHOT,)), replace(FOLLOWED, lapsed=("x",), lsn=9)),
        TableState("quarantined", LSN(9), PLAN, None, FOLLOWED, Quarantine("SinkError", "No.", 1.5)),
    ],
    ids=lambda state: state.stage,
)
def test_a_state_comes_back_as_it_was_written(folder: TableFolder, state: TableState) -> None:
    folder.write(state)
    assert folder.read() == state


def test_what_a_plan_reads_is_what_the_target_follows() -> None:
    assert Followed.of(PLAN) == FOLLOWED


def test_the_first_to_finish_a_chunk_is_the_one_that_counts(folder: TableFolder) -> None:
    folder.write(TableState("data_copy", None, PLAN))
    assert folder.finish_chunk("p1", CHUNK)
    assert not folder.finish_chunk("p1", replace(CHUNK, rows=99))
    assert folder.chunks("p1") == {0: CHUNK}
    assert sorted(path.name for path in folder.path.glob(".*")) == []


def test_chunks_of_another_plan_do_not_count_even_those_that_come_late(folder: TableFolder) -> None:
    folder.write(TableState())
    folder.finish_chunk("p1", CHUNK)
    folder.remove_chunks(but="p2")
    folder.finish_chunk("p1", replace(CHUNK, number=1))
    assert folder.chunks("p2") == {}
    assert folder.count_chunks("p2") == 0
    assert folder.count_chunks("p1") == 1


def test_a_document_that_says_something_else_is_told_by_its_name(folder: TableFolder) -> None:
    folder.write(TableState())
    (folder.path / "state.json").write_bytes(write_document({"state": "ready"}))
    with pytest.raises(LogCorruptError, match=r"state\.json"):
        folder.read()


def test_names_with_dots_and_slashes_do_not_collide(tmp_path: Path) -> None:
    names = {("a.b", "c"), ("a", "b.c"), ("a", "b/c")}
    for each in names:
        TableFolder(tmp_path, *each).write(TableState())
    assert {*known_tables(tmp_path)} == names
