"""Batches from control rows, errors of Spark, positions from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wal2lake.changelog.plan import Extent
from wal2lake.errors import UnrepresentableError
from wal2lake.pipeline import apply
from wal2lake.pipeline.ticking import Rates
from wal2lake.spark.checkpoint import committed_lsn
from wal2lake.spark.jobs import spark_lost
from wal2lake.tables.failures import quarantine_error
from wal2lake.tables.state import Quarantine


def control(table: str, seq: int, digest: str = "d", inserts: int = 1, relation_id: int = 1) -> dict[str, Any]:
    return {
        "relation_id": relation_id, "namespace": "s", "table": table, "schema_digest": digest, "seq": seq,
        "row_start": 0, "row_stop": 10, "inserts": inserts, "updates": 0, "deletes": 1, "truncates": 0,
        "start_lsn": 5, "end_lsn": 9,
    }  # fmt: skip


def test_control_rows_become_one_item_per_table_in_the_logs_order() -> None:
    rows = [control("b", 0), control("a", 0, relation_id=2), control("b", 1, "e")]
    a, b = apply.by_relation(rows)
    assert (str(a), a.relation_id, str(b)) == ("s.a", 2, "s.b")
    assert b.parts == ((Extent(0, 0, 10), "d", 2), (Extent(1, 0, 10), "e", 2))
    assert (b.start, b.end, b.changes) == (5, 9, 4)
    assert apply.by_relation([]) == []


def test_a_batch_is_split_by_changes_and_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "APPEND_TASK_ROWS", 10)
    (item,) = apply.by_relation([control("a", seq, inserts=5) for seq in range(5)])
    assert [len(group) for group in apply.split(item)] == [2, 2, 1]


def test_what_spark_gives_up_is_worth_a_restart() -> None:
    found = spark_lost(RuntimeError("\nPython worker exited unexpectedly\n\tat org.apache"))
    assert found.transient
    assert "Python worker exited unexpectedly" in str(found)


def test_quarantined_tables_end_in_the_first_ones_kind() -> None:
    kept = [("s.a", Quarantine("UnrepresentableError", "No place.", 0.0))]
    error = quarantine_error(kept)
    assert isinstance(error, UnrepresentableError)
    assert "s.a: No place." in str(error)


def test_the_checkpoint_tells_where_the_stream_stands(tmp_path: Path) -> None:
    assert committed_lsn(tmp_path) is None
    for folder, names in (("commits", ("0", "1", ".1.crc")), ("offsets", ("0", "1", "2"))):
        (tmp_path / folder).mkdir()
        for name in names:
            lsn = name if name.isdecimal() else "9"
            (tmp_path / folder / name).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"lsn": {lsn}0}}\n')
    assert committed_lsn(tmp_path) == 10


def test_rates_are_of_the_last_seconds() -> None:
    now = 0.0
    rates = Rates(lambda: now, window_s=10)
    assert rates.rate("t", 0) == 0
    for now in range(1, 40):
        found = rates.rate("t", 0 if now < 20 else (now - 20) * 100)
    assert found == pytest.approx(100, rel=0.1)
