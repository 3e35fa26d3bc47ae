"""A table's document and its chunks: what is done stays done, what an abandoned plan leaves behind never counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.changelog.conftest import flushed_paths
from wal2lake.changelog.documents import write_document
from wal2lake.changelog.local import LocalStorage
from wal2lake.changelog.tables import known_tables
from wal2lake.errors import LogCorruptError, SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog_rows import CatalogRows, ColumnRow, HeapFile
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
from wal2lake.tables.table_folder import TableFolder

PLAN = SnapshotPlan(
    "p1", 7, "d", "shape", "heap", "digest", ("id",), (PlannedColumn("id", 1, 20, -1, 20, True),),
    (Chunk(0, 0, 5), Chunk(1, 5, None)),
)  # fmt: skip
SNAPSHOT = SnapshotIdentity("00000003-00000002-1", 700, 705, (701,), LSN(0x16B3748))
CHUNK = DoneChunk(0, 10, SNAPSHOT, (FileAction("a.parquet", 9, 1, 10, {"id": 0}, {"id": 1}, {"id": 10}),))
ROWS = CatalogRows(
    name="public.t",
    published=("publication 16400 780", "table 16401 781"),
    listed=True,
    columns=(ColumnRow(1, "id", 23, -1, 779),),
    files=(HeapFile(16390, 16390, "p", first=True, writer=779),),
    labels=("16380 777",),
)
FOLLOWED = Followed({"id": 1}, ("digest",), {"id": (20, -1)})


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    return TableFolder(tmp_path, "p", "shop", "item")


def test_nothing_is_there_at_first(folder: TableFolder, tmp_path: Path) -> None:
    assert folder.read() == TableState()
    assert list(tmp_path.iterdir()) == []
    assert folder.chunks("p1") == {}


@pytest.mark.parametrize(
    "state",
    [
        TableState(),
        TableState("init", LSN(5)),
        TableState("data_copy", None, PLAN, followed=Followed.of(PLAN)),
        TableState("catch_up", LSN(77), PLAN, Landed("p1", 60, (SNAPSHOT, SNAPSHOT), 70), FOLLOWED),
        TableState("ready", None, PLAN, Landed("p1", 60, (SNAPSHOT,)), replace(FOLLOWED, lapsed=("x",), lsn=9)),
        TableState("unpublished", None, PLAN, Landed("p1", 60, (SNAPSHOT,)), FOLLOWED, rows=ROWS),
        TableState("quarantined", LSN(9), PLAN, None, FOLLOWED, Quarantine("SinkError", "No.", 1.5)),
        TableState("init", LSN(9), tried=Quarantine("SinkError", "No.", 1.5)),
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


def test_chunks_of_another_plan_do_not_count_even_those_that_come_late(folder: TableFolder) -> None:
    folder.write(TableState())
    folder.finish_chunk("p1", CHUNK)
    folder.documents.remove_chunks(but="p2")
    folder.finish_chunk("p1", replace(CHUNK, number=1))
    assert folder.chunks("p2") == {}
    assert len(folder.chunks("p2")) == 0
    assert len(folder.chunks("p1")) == 1


def test_a_document_that_says_something_else_is_told_by_its_name(folder: TableFolder, tmp_path: Path) -> None:
    folder.write(TableState())
    (tmp_path / "snapshots/p/shop.item/state.json").write_bytes(write_document({"state": "ready"}))
    with pytest.raises(LogCorruptError, match=r"state\.json"):
        folder.read()


def test_names_with_dots_and_slashes_do_not_collide(tmp_path: Path) -> None:
    names = {("a.b", "c"), ("a", "b.c"), ("a", "b/c")}
    for each in names:
        TableFolder(tmp_path, "p", *each).write(TableState())
    assert {*known_tables(LocalStorage(tmp_path), "p")} == names


def test_a_process_that_is_not_the_only_one_any_more_changes_nothing(tmp_path: Path) -> None:
    ours, theirs = (TableFolder(tmp_path, "p", "shop", "item") for _ in range(2))
    ours.write(TableState("init", LSN(5)))
    assert theirs.read() == TableState("init", LSN(5))
    theirs.write(TableState("catch_up", LSN(7)))
    with pytest.raises(SlotInUseError, match="Another process has changed"):
        ours.write(TableState("ready"))
    assert ours.read() == TableState("catch_up", LSN(7))
    ours.write(TableState("ready"))


def test_a_table_that_is_forgotten_is_known_until_all_of_it_is_gone(
    folder: TableFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write(TableState("data_copy", None, PLAN))
    folder.finish_chunk("p1", CHUNK)
    unlink, removed = Path.unlink, list[str]()

    def note(path: Path, missing_ok: bool = False) -> None:
        if not path.name.startswith("."):
            removed.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", note)
    folder.documents.remove()
    assert (len(removed), removed[-1]) == (2, "state.json")
    assert known_tables(LocalStorage(tmp_path), "p") == []
    folder.write(TableState())


def test_folders_are_flushed_once_for_a_new_table_and_no_more(
    folder: TableFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = flushed_paths(monkeypatch)
    folder.write(TableState("data_copy", plan=PLAN))
    own = tmp_path / folder.documents.folder
    assert {tmp_path, own.parent, own} <= set(flushed)
    assert len(flushed) <= 9
    flushed.clear()
    folder.write(TableState("ready"))
    TableFolder(tmp_path, "p", "shop", "item").read()
    assert flushed[1:] == [own]  # behind the file itself
