"""What a Delta table no longer holds goes when its own properties say so, and nothing is forgotten undeleted."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.apply.build import Event
from tests.sinks.test_commits import interpose
from tests.sinks.test_delta import ROWS, SCHEMA, as_table, folded, land, read
from wal2lake.sinks.base import SinkConflictError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.delta_past import LOG, REMOVED_FILES
from wal2lake.sinks.retention import Retention

HOUR = 3600


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def rewrite(sink: DeltaSink, times: int, *, maintain: bool = False) -> None:
    """So many versions, each of which removes the file of the one before."""
    state = sink.state()
    if state is None:
        land(sink, as_table(ROWS), 10, None)
        state = sink.state()
    assert state is not None
    for lsn in range(state.applied_lsn, state.applied_lsn + times):
        if sink.merge(folded(Event("U", (1, f"at {lsn}", "d", None))), lsn + 1, lsn) and maintain:
            sink.maintain()


def let_pass(sink: DeltaSink, seconds: float) -> None:
    """Make all that the table's folder holds so much older, in the log's words and in the file system's."""
    found = {path: path.stat().st_mtime for path in Path(sink.uri).rglob("*")}
    for path in found:
        if path.suffix == ".json":
            path.write_text("".join(_older(json.loads(line), seconds) for line in path.read_text().splitlines()))
        elif ".checkpoint." in path.name:
            rows = pq.read_table(path)
            schema, actions = rows.schema, rows.to_pylist()
            for action in actions:
                if action["remove"]:
                    action["remove"]["deletionTimestamp"] -= int(seconds * 1000)
            pq.write_table(pa.Table.from_pylist(actions, schema), path)
    for path, modified in found.items():
        os.utime(path, (modified - seconds, modified - seconds))


def _older(action: dict[str, Any], seconds: float) -> str:
    if "remove" in action:
        action["remove"]["deletionTimestamp"] -= int(seconds * 1000)
    return json.dumps(action) + "\n"


def files(sink: DeltaSink) -> set[str]:
    return {path.name for path in Path(sink.uri).glob("*.parquet")}


def live(sink: DeltaSink) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(sink.uri).file_uris()}


def tombstones(sink: DeltaSink) -> set[str]:
    """The removed files that the log names, by delta-rs."""
    return set(DeltaTable(sink.uri).vacuum(0, dry_run=True, enforce_retention_duration=False))


def said(sink: DeltaSink, name: str = REMOVED_FILES) -> str | None:
    return DeltaTable(sink.uri).metadata().configuration.get(name)


def set_by_user(sink: DeltaSink, **properties: str) -> None:
    DeltaTable(sink.uri).alter.set_table_properties(
        {f"delta.{name}": value for name, value in properties.items()}, raise_if_not_exists=False
    )


def test_removed_files_stay_as_long_as_the_table_says(uri: str) -> None:
    sink = DeltaSink(uri, "p")
    rewrite(sink, 3)
    assert said(sink) == said(sink, LOG) == "interval 1 days"
    let_pass(sink, 23 * HOUR)
    version = DeltaTable(uri).version()
    rewrite(sink, 2)
    sink.maintain()
    assert len(files(sink)) == 6
    for earlier in range(version + 1):
        assert DeltaTable(uri, version=earlier).to_pyarrow_table().num_rows == 10
    let_pass(sink, 2 * HOUR)
    due = sink.maintain()
    assert len(files(sink)) == 3
    assert due == pytest.approx(22 * HOUR, abs=120)
    assert files(sink) <= live(sink) | tombstones(sink)
    let_pass(sink, 23 * HOUR)
    assert sink.maintain() is None
    assert files(sink) == live(sink)
    assert len(read(sink)) == 10


def test_a_hot_small_table_keeps_so_many_bytes_and_says_for_how_long(uri: str) -> None:
    """A file each half an hour; each counts as 32 KiB, so that ten of them fit."""
    sink = DeltaSink(uri, "p", Retention(86_400, 10 * (32 << 10), 600))
    for _ in range(16):
        rewrite(sink, 1)
        let_pass(sink, 1800)
    sink.maintain()
    assert said(sink) == "interval 3 hours"
    assert len(files(sink) - live(sink)) == 5  # removed less than three hours ago
    for version in range(16 - 5, 17):
        assert DeltaTable(uri, version=version).to_pyarrow_table().num_rows == 10
    let_pass(sink, 2 * HOUR)
    sink.maintain()
    assert said(sink) == "interval 6 hours"  # a step: it is idle
    let_pass(sink, 24 * HOUR)
    for _ in range(3):
        sink.maintain()
    assert said(sink) == "interval 1 days"


def test_no_bytes_make_a_running_query_lose_its_files(uri: str) -> None:
    sink = DeltaSink(uri, "p", Retention(86_400, 0, 600))
    rewrite(sink, 1)
    let_pass(sink, 601)
    rewrite(sink, 3)
    began = DeltaTable(uri)
    rewrite(sink, 4)
    let_pass(sink, 590)
    sink.maintain()
    assert said(sink) == "interval 10 minutes"
    assert began.to_pyarrow_table().num_rows == 10
    assert len(files(sink)) == 8  # the one that had been removed before is gone


@pytest.mark.parametrize("seconds", [0, 86_400])
def test_what_is_not_deleted_stays_known_whatever_is_committed_and_checkpointed(uri: str, seconds: int) -> None:
    """A checkpoint leaves out tombstones that are older than the property says: files that nobody would ever delete."""
    sink = DeltaSink(uri, "p", Retention(seconds, 1 << 30, 0))
    rewrite(sink, 10)
    sink.evolve(SCHEMA.append(pa.field("n", pa.int32())))
    rewrite(sink, 15)
    assert files(sink) <= live(sink) | tombstones(sink)
    rewrite(sink, 45, maintain=True)
    sink.maintain()
    assert files(sink) <= live(sink) | tombstones(sink)
    assert len(files(sink)) == (1 if seconds == 0 else 71)
    assert len(list(Path(uri, "_delta_log").glob("*.checkpoint.parquet"))) >= 1
    if not seconds:
        assert len(list(Path(uri, "_delta_log").glob("*.json"))) < 30


def test_the_table_says_what_the_setting_says_and_what_its_user_said_stays(uri: str) -> None:
    rewrite(DeltaSink(uri, "p"), 2)
    longer = DeltaSink(uri, "p", Retention(14 * 86_400, 1 << 30, 600))
    longer.maintain()
    assert said(longer) == said(longer, LOG) == "interval 2 weeks"
    set_by_user(longer, deletedFileRetentionDuration="interval 2 days")
    shorter = DeltaSink(uri, "p", Retention(HOUR, 1 << 30, 60))
    shorter.maintain()
    assert (said(shorter), said(shorter, LOG)) == ("interval 2 days", "interval 1 hours")
    let_pass(shorter, 47 * HOUR)
    shorter.maintain()
    assert len(files(shorter)) == 3
    let_pass(shorter, 2 * HOUR)
    shorter.maintain()
    assert files(shorter) == live(shorter)
    set_by_user(shorter, deletedFileRetentionDuration="interval 1 hours")  # what the setting says: that hands it back
    longer.maintain()
    shorter.maintain()
    longer.maintain()
    assert said(longer) == "interval 2 weeks"


def test_what_a_table_said_before_there_was_a_setting_is_not_its_users(uri: str) -> None:
    sink = DeltaSink(uri, "p", Retention(2 * HOUR, 1 << 30, 600))
    rewrite(sink, 1)
    metadata = Path(uri, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in metadata.read_text().splitlines()]
    for action in lines:
        if "txn" in action and "kept" in action["txn"]["appId"]:
            action["txn"]["appId"] = "another's"
        if "metaData" in action:
            action["metaData"]["configuration"] = {REMOVED_FILES: "interval 1 days", LOG: "interval 6 hours"}
    metadata.write_text("\n".join(map(json.dumps, lines)))
    sink.maintain()
    assert said(sink) == said(sink, LOG) == "interval 2 hours"


def test_a_time_that_cannot_be_read_is_said(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = DeltaSink(uri, "p", Retention(0, 0, 0))
    rewrite(sink, 1)
    set_by_user(sink, deletedFileRetentionDuration="a while")
    let_pass(sink, 6 * 86_400)
    with caplog.at_level(logging.WARNING):
        sink.maintain()
        sink.maintain()
    assert len(files(sink)) == 2
    [record] = caplog.records
    assert "'a while', which cannot be read" in record.getMessage()
    let_pass(sink, 2 * 86_400)
    sink.maintain()
    assert files(sink) == live(sink)


def test_files_that_were_brought_back_are_live(uri: str) -> None:
    sink = DeltaSink(uri, "p", Retention(0, 0, 0))
    rewrite(sink, 2)
    DeltaTable(uri).restore(1)
    before = live(sink)
    sink.maintain()
    assert files(sink) == live(sink) == before


def test_a_checkpoint_of_several_parts_counts_when_it_is_whole(uri: str) -> None:
    """As other writers make them."""
    sink = DeltaSink(uri, "p", Retention(HOUR, 1 << 30, 0))
    rewrite(sink, 3)
    sink.maintain()
    log = Path(uri, "_delta_log")
    [single] = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(single)
    single.unlink()
    stem = single.name.removesuffix(".parquet")
    for part, first in ((1, 0), (2, rows.num_rows // 2)):
        half = rows.slice(first, rows.num_rows // 2 if part == 1 else None)
        pq.write_table(half, log / f"{stem}.{part:010d}.{2:010d}.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": 3, "size": rows.num_rows, "parts": 2}))
    pq.write_table(rows, log / f"{9:020d}.checkpoint.{1:010d}.{2:010d}.parquet")  # whose other part is not there
    for name in log.glob("*.json"):
        if int(name.stem) < 3:
            name.unlink()
    (log / f"{9:020d}.checkpoint.{1:010d}.{2:010d}.parquet").rename(log.parent / "apart")
    rewrite(sink, 1)
    (log.parent / "apart").rename(log / f"{9:020d}.checkpoint.{1:010d}.{2:010d}.parquet")
    let_pass(sink, HOUR - 60)
    assert sink.maintain() == pytest.approx(60, abs=30)
    assert len(files(sink)) == 5
    let_pass(sink, 120)
    sink.maintain()
    assert files(sink) == live(sink)


@pytest.mark.parametrize("what", ["merge", "evolve"])
def test_files_of_a_commit_that_is_refused_are_removed(uri: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, rival = DeltaSink(uri, "p"), DeltaSink(uri, "p")
    rewrite(sink, 1)
    interpose(monkeypatch, lambda: rival.merge(folded(Event("D", old=(5, None, None, None))), 12, 11))
    with pytest.raises(SinkConflictError):
        if what == "merge":
            sink.merge(folded(Event("D", old=(5, None, None, None))), 12, 11)
        else:
            wider = SCHEMA.set(0, pa.field("id", pa.int64())).append(pa.field("n", pa.int32()))
            sink.evolve(wider, {"n": pa.scalar(5, pa.int32())})
    assert files(sink) <= live(sink) | tombstones(sink)


def test_files_that_a_commit_names_stay_though_it_fails_afterwards(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink(uri, "p")
    rewrite(sink, 1)

    def fails(path: str | Path) -> None:
        if "_delta_log" in str(path):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("wal2lake.files.flush", fails)
    with pytest.raises(Exception, match="cannot be used"):
        sink.merge(folded(Event("D", old=(5, None, None, None))), 12, 11)
    assert len(read(sink)) == 9


def test_orphans_go_when_no_snapshot_can_want_them(uri: str) -> None:
    sink = DeltaSink(uri, "p")
    rewrite(sink, 1)
    orphans = {action.path for action in sink.write_files(as_table(ROWS).to_batches(), SCHEMA)}
    let_pass(sink, 6.9 * 86_400)
    sink.maintain()
    assert files(sink) == live(sink) | orphans
    let_pass(sink, 0.2 * 86_400)
    sink.maintain()
    assert files(sink) == live(sink)
