"""What an Iceberg table was is kept as long as is said, and goes with all that it alone named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.apply.build import Event, U
from tests.sinks.test_delta import SCHEMA, as_table, folded, land
from tests.sinks.test_iceberg import filled, known, named, opened, read, sink
from wal2lake.sinks.base import Sink

__all__ = ["filled", "sink"]  # fixtures


def files(sink: Sink) -> set[str]:
    return {path.name for path in Path(sink.uri, "data").glob("*.parquet")}


@pytest.fixture(autouse=True)
def plain_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("wal2lake.sinks.iceberg_past.MAINTAIN_EVERY", 3)
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 3)
    yield


def maintained(sink: Sink, lsns: Sequence[int]) -> int:
    """How often maintenance was due, and done."""
    due = 0
    for lsn in lsns:
        if sink.merge(
            folded(Event("I", (lsn, f"row {lsn}", None, None)), Event("U", (lsn - 1, U, U, "n"))), lsn, lsn - 1
        ):
            sink.maintain()
            due += 1
    return due


@pytest.mark.usefixtures("quick")
def test_what_is_kept_stays_and_the_rest_goes(tmp_path: Path) -> None:
    sink = opened(tmp_path, retention_seconds=0, min_retention_seconds=0)
    land(sink, as_table([(10, "row 10", None, None)]), 10, None)
    assert maintained(sink, range(11, 20)) >= 3
    sink.maintain()
    assert len(known(sink).snapshots()) <= 2 and sorted(row[0] for row in read(sink)) == list(range(10, 20))
    sink.maintain()
    left = {path.name for path in Path(sink.uri).rglob("*") if path.is_file()}
    assert len([name for name in left if name.endswith(".parquet")]) <= len(named(sink)) + 2
    assert len([name for name in left if name.endswith(".avro")]) <= 12
    state = sink.state()
    assert state is not None and state.applied_lsn == 19


@pytest.mark.usefixtures("quick")
def test_a_kept_snapshot_is_read_for_as_long_as_is_said(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    land(sink, as_table([(10, "row 10", None, None)]), 10, None)
    maintained(sink, range(11, 20))
    table = known(sink)
    counts = [table.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in table.snapshots()]
    assert set(counts) == set(range(1, 11))
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    assert sink.maintain() is None
    assert len(known(sink).snapshots()) <= 2 and len(read(sink)) == 10


def test_files_that_nobody_named_go_after_a_week(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.write_files(as_table([(1, "a", "b", "c")]).to_batches(), SCHEMA)
    filled.merge(folded(Event("T")), 20, 11)
    with known(filled).transaction() as transaction:
        transaction.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    filled.maintain()
    filled.maintain()
    assert len(files(filled)) == 1
    monkeypatch.setattr("wal2lake.sinks.iceberg_past.ORPHAN_S", -timedelta(days=1).total_seconds())
    filled.maintain()
    assert files(filled) == set() and read(filled) == []
