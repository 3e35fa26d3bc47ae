"""A table that stays open is what lies on the disk, whoever has done what to it since."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from wal2lake.apply.fold import Folded
from wal2lake.sinks import delta, open_tables
from wal2lake.sinks.base import SinkConflictError, TargetError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.open_tables import OpenTables

SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string())])


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> OpenTables:
    tables = OpenTables()
    monkeypatch.setattr(delta, "OPEN_TABLES", tables)
    return tables


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    """One row, at LSN 1; open."""
    made = DeltaSink(str(tmp_path / "t"), "test")
    made.commit_files(made.write_files(rows(0).to_batches(), SCHEMA), 1, SCHEMA, None)
    assert stands(made) == 1
    return made


def rows(*ids: int) -> pa.Table:
    return pa.table([ids, [f"note {i}" for i in ids]], SCHEMA)


def stands(sink: DeltaSink) -> int:
    state = sink.state()
    assert state is not None
    return int(state.applied_lsn)


def insert(sink: DeltaSink, row: int, lsn: int, applied: int) -> None:
    come = rows(row)
    key = come.select(["id"])
    sink.merge(Folded(("id",), False, come, key.slice(1), {}, key), lsn, applied)


def by_another_process(sink: DeltaSink, row: int, lsn: int, applied: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "OPEN_TABLES", OpenTables())
        insert(DeltaSink(sink.uri, "test"), row, lsn, applied)


def ids(sink: DeltaSink) -> list[int]:
    return sorted(DeltaTable(sink.uri).to_pyarrow_table()["id"].to_pylist())


def test_it_is_opened_once(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_tables, "DeltaTable", None)
    for lsn in range(2, 6):
        insert(sink, lsn, lsn, lsn - 1)
        assert stands(DeltaSink(sink.uri, "test")) == lsn
    assert ids(sink) == [0, 2, 3, 4, 5]


def test_what_somebody_else_has_committed_counts(sink: DeltaSink) -> None:
    by_another_process(sink, 1, 2, 1)
    with pytest.raises(SinkConflictError):
        insert(sink, 9, 2 + 1, 1)
    assert stands(sink) == 2
    insert(sink, 2, 3, 2)
    by_another_process(sink, 3, 4, 3)
    insert(sink, 9, 4, 3)  # which is applied: nothing is done
    assert (stands(sink), ids(sink)) == (4, [0, 1, 2, 3])


def test_somebody_else_who_commits_after_us_is_not_taken_for_us(sink: DeltaSink) -> None:
    insert(sink, 1, 2, 1)
    by_another_process(sink, 2, 3, 2)
    by_another_process(sink, 3, 4, 3)
    assert stands(sink) == 4


def test_who_was_overtaken_amid_a_merge_has_changed_nothing(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    write = delta.write_data_files

    def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(delta, "write_data_files", write)
        by_another_process(sink, 1, 2, 1)
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(delta, "write_data_files", overtaken)
    with pytest.raises(SinkConflictError):
        insert(sink, 1, 2, 1)
    assert (stands(sink), ids(sink)) == (2, [0, 1])


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_table_that_was_put_back_is_read_again(sink: DeltaSink, tmp_path: Path, behind: int) -> None:
    """The copy has versions of the same numbers, or fewer, or more, and other rows."""
    copy = DeltaSink(str(tmp_path / "copy"), "test")
    shutil.copytree(sink.uri, copy.uri)
    for lsn in range(2, 4):
        insert(sink, lsn, lsn, lsn - 1)
    assert stands(sink) == 3
    for number in range(2 * (2 - behind)):
        insert(copy, 20 + number, 20 + number, 1 if number == 0 else 19 + number)
    shutil.rmtree(sink.uri)
    Path(copy.uri).rename(sink.uri)
    assert stands(sink) == {0: 23, 1: 21, 2: 1}[behind]
    assert sink.count_rows() == {0: 5, 1: 3, 2: 1}[behind]


def test_a_table_that_is_gone_is_gone(sink: DeltaSink) -> None:
    shutil.rmtree(sink.uri)
    assert sink.state() is None
    with pytest.raises(TargetError):
        sink.maintain()


def test_another_pipeline_is_told_that_the_table_is_not_its(sink: DeltaSink) -> None:
    with pytest.raises(TargetError, match="did not make"):
        DeltaSink(sink.uri, "other").state()


def test_maintenance_leaves_it_open_in_its_newest_version(sink: DeltaSink) -> None:
    for lsn in range(2, 30):
        insert(sink, lsn, lsn, lsn - 1)
        if lsn % 7 == 0:
            sink.maintain()
        assert stands(sink) == lsn
    assert ids(sink) == [0, *range(2, 30)]


def test_it_is_lent_to_one_at_a_time(sink: DeltaSink, opened: OpenTables) -> None:
    folder = Folder(sink.uri)
    first, second = opened.borrow(folder), opened.borrow(folder)
    assert first is not second
    opened.give_back(folder, first)
    assert opened.borrow(folder) is first


def test_so_many_are_kept_and_no_more(sink: DeltaSink, opened: OpenTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_tables, "KEPT", 1)
    folder, other = Folder(sink.uri), Folder(f"{sink.uri}2")
    DeltaSink(other.uri, "test").commit_files([], 1, SCHEMA, None)
    first, second = opened.borrow(folder), opened.borrow(other)
    opened.give_back(folder, first)
    opened.give_back(other, second)
    assert opened.borrow(folder) is not first
    assert opened.borrow(other) is second
