"""What a commit to a Delta table is: made once or not at all, durable, and of the same words whoever makes it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.apply.build import Event
from tests.sinks.test_delta import ROWS, SCHEMA, as_table, folded, land, read
from wal2lake.sinks import folder
from wal2lake.sinks.base import SinkConflictError, TargetError
from wal2lake.sinks.delta import DeltaSink


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(str(tmp_path / "shop" / "item"), "p")


@pytest.fixture
def filled(sink: DeltaSink) -> DeltaSink:
    """Ten rows in two files, at LSN 11."""
    land(sink, as_table(ROWS[:5]), 10, None)
    sink.commit_files(sink.write_files(as_table(ROWS[5:]).to_batches(), SCHEMA), 11, SCHEMA, 10)
    return sink


def interpose(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Have ``rival`` act once, right before the next commit, whoever makes it."""
    delta, ours = DeltaTable.create_write_transaction, folder.create
    acts = [rival]

    def by_delta(self: DeltaTable, *args: Any, **options: Any) -> None:
        for act in acts[:]:
            acts.remove(act)
            act()
        delta(self, *args, **options)

    def by_us(*args: Any) -> bool:
        for act in acts[:]:
            acts.remove(act)
            act()
        return ours(*args)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", by_delta)
    monkeypatch.setattr(folder, "create", by_us)


@pytest.mark.parametrize("what", ["merge", "append", "evolve", "maintain"])
def test_a_commit_in_between_makes_ours_fail_and_doubles_nothing(
    filled: DeltaSink, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival is the same task run twice; it commits after ours has loaded the table and written its files."""
    rival = DeltaSink(filled.uri, "p")
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 2)
    actions = filled.write_files(as_table([(50, "a", "b", "c")]).to_batches(), SCHEMA)
    interpose(monkeypatch, lambda: rival.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11))
    with pytest.raises(SinkConflictError) as caught:
        if what == "merge":
            filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
        elif what == "append":
            filled.commit_files(actions, 20, SCHEMA, 11)
        elif what == "evolve":
            filled.evolve(SCHEMA.append(pa.field("n", pa.int32())), {"n": pa.scalar(5, pa.int32())})
        else:
            filled.maintain()
    assert caught.value.transient
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_an_end_at_the_commit_leaves_it_made_or_not(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch, behind: bool, killed: bool
) -> None:
    """Killed: nothing is tidied up. What was applied is applied once, and what was not is applied again."""
    real = folder.create

    def dies(*args: Any) -> Any:
        if behind:
            real(*args)
        raise KeyboardInterrupt

    batch = folded(Event("I", (50, "a", "b", "c")), Event("D", old=(4, None, None, None)))
    with monkeypatch.context() as patch:
        patch.setattr(folder, "create", dies)
        if killed:
            patch.setattr("wal2lake.sinks.folder.Folder.remove", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            filled.merge(batch, 20, 11)
    expected = sorted([*(row for row in ROWS if row[0] != 4), (50, "a", "b", "c")])
    again = DeltaSink(filled.uri, "p")
    assert sorted(read(again)) == (expected if behind else ROWS)
    state = again.state()
    assert state is not None
    assert state.applied_lsn == (20 if behind else 11)
    again.merge(batch, 20, 11)
    assert sorted(read(again)) == expected
    orphans = {path.name for path in Path(filled.uri).glob("*.parquet")} - {*_paths(filled, removed=True)}
    assert len(orphans) == int(killed and not behind)


def _paths(sink: DeltaSink, *, removed: bool = False) -> list[str]:
    """Of the live data files, and of those that the log says are removed."""
    lines = [line for path in Path(sink.uri, "_delta_log").glob("*.json") for line in path.read_text().splitlines()]
    gone = [action["remove"]["path"] for action in map(json.loads, lines) if "remove" in action]
    return [*pa.table(DeltaTable(sink.uri).get_add_actions())["path"].to_pylist(), *(gone if removed else [])]


def test_a_commit_lists_no_folder_whatever_the_table_keeps(filled: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs's own do, so that each is dearer the more of the past there is."""
    monkeypatch.setattr(DeltaTable, "create_write_transaction", None)
    filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
    filled.merge(folded(Event("D", old=(50, None, None, None))), 21, 20)
    filled.commit_files(filled.write_files(as_table([(51, "", None, "")]).to_batches(), SCHEMA), 22, SCHEMA, 21)
    assert sorted(read(filled)) == [*ROWS, (51, "", None, "")]


def test_a_file_that_somebody_else_named_goes_by_the_name_that_it_has_in_the_log(filled: DeltaSink) -> None:
    [action] = filled.write_files(as_table([(50, "a", "b", "c")]).to_batches(), SCHEMA)
    odd = "part 50 % ü.parquet"
    Path(filled.uri, action.path).rename(Path(filled.uri, odd))
    filled.commit_files([replace(action, path=odd)], 20, SCHEMA, 11)
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]
    filled.merge(folded(Event("U", (50, "x", "y", "z"))), 21, 20)
    assert sorted(read(filled)) == [*ROWS, (50, "x", "y", "z")]


def test_no_rows_go_from_a_table_whose_owner_forbids_it(filled: DeltaSink) -> None:
    DeltaTable(filled.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TargetError, match="appendOnly"):
        filled.merge(folded(Event("D", old=(4, None, None, None))), 20, 11)
    assert sorted(read(filled)) == ROWS
    filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]


def test_every_commit_and_checkpoint_is_flushed_before_the_call_returns(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: flushed.add(os.fstat(file).st_ino))
    log = Path(sink.uri) / "_delta_log"

    def all_flushed() -> bool:
        written = {path.stat().st_ino for path in [log, *log.iterdir()] if path == log or path.is_file()}
        return written <= flushed

    narrow = pa.table({"id": pa.array([1], pa.int32())})
    moments = pa.table({"at": pa.array([None], pa.timestamp("us"))})
    land(sink, narrow, 10, None)
    assert all_flushed()
    sink.evolve(narrow.schema.append(pa.field("n", pa.int32())))
    assert all_flushed()
    sink.evolve(pa.schema([("id", pa.int64()), ("n", pa.int32())]))
    assert all_flushed()
    land(sink, moments, 11, 10)
    assert all_flushed()
    sink.maintain()
    assert all_flushed()
    for lsn in range(12, 40):
        if sink.commit_files([], lsn, moments.schema, lsn - 1):
            sink.maintain()
        assert all_flushed()
    assert (log / "_last_checkpoint").stat().st_ino in flushed
