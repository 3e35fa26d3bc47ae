from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from tests.apply.build import INT8, TEXT, Event, U, changes, table
from wal2lake.apply.envelope import ENVELOPE, Commits, envelope, snapshot_envelope
from wal2lake.errors import LogCorruptError, SchemaChangeError

ITEM = table({"id": INT8, "name": TEXT, "doc": TEXT}, key=["id"])
TRANSACTIONS = pa.table(
    {
        "xid": pa.array([8, 7], pa.uint32()),
        "final_lsn": pa.array([80, 200], pa.uint64()),
        "end_lsn": pa.array([90, 210], pa.uint64()),
        "commit_ts": pa.array([0, 1_000_001], pa.int64()),
    }
)


def test_every_change_is_a_row_and_a_moved_one_is_two() -> None:
    batch = changes(
        ITEM,
        [
            Event("I", (1, "a", "d")),
            Event("U", (1, "b", U)),
            Event("U", (2, U, U), (1, None, None)),
            Event("U", (2, "c", U), (2, None, None)),
            Event("D", old=(2, None, None)),
            Event("T"),
        ],
        xid=[8, 7, 7, 7, 7, 7],
    )
    found = envelope(batch, Commits.of(batch.xid, TRANSACTIONS), ["id"])
    found.validate(full=True)
    assert found.schema.names == [*ENVELOPE.names, "id", "name", "doc"]
    assert list(zip(*(found[name].to_pylist() for name in ("_op", "_lsn", "id", "name", "doc")), strict=True)) == [
        ("I", 100, 1, "a", "d"),
        ("U", 101, 1, "b", None),
        ("D", 102, 1, None, None),
        ("U", 102, 2, None, None),
        ("U", 103, 2, "c", None),
        ("D", 104, 2, None, None),
        ("T", 105, None, None, None),
    ]
    assert found["_unchanged"].to_pylist() == [[], ["doc"], [], ["name", "doc"], ["doc"], [], []]
    assert found["_commit_lsn"].to_pylist() == [90] + [210] * 6
    assert found["_xid"].to_pylist() == [8] + [7] * 6
    assert found["_commit_ts"][0].as_py() == datetime(2000, 1, 1, tzinfo=UTC)
    assert found["_commit_ts"][1].as_py() == datetime(2000, 1, 1, 0, 0, 1, 1, tzinfo=UTC)


def test_the_whole_row_is_the_key_of_a_table_without_one() -> None:
    note = table({"a": TEXT, "b": TEXT}, key=[], identity="f")
    batch = changes(
        note, [Event("U", ("x", None), ("x", None), "O"), Event("U", ("y", None), ("x", None), "O")], xid=[7, 7]
    )
    found = envelope(batch, Commits.of(batch.xid, TRANSACTIONS), [])
    assert [(r["_op"], r["a"]) for r in found.to_pylist()] == [("U", "x"), ("D", "x"), ("U", "y")]


def test_no_changes_make_no_rows() -> None:
    batch = changes(ITEM, [])
    found = envelope(batch, Commits.of(batch.xid, TRANSACTIONS), ["id"])
    assert found.num_rows == 0


def test_snapshot_rows_have_no_transaction() -> None:
    rows = pa.table([[1], ["a"], [None]], schema=ITEM.arrow_schema)
    assert snapshot_envelope(rows, ITEM, 50).to_pylist() == [
        {
            "_op": "R",
            "_commit_lsn": 50,
            "_lsn": 0,
            "_commit_ts": None,
            "_xid": None,
            "_unchanged": [],
            "id": 1,
            "name": "a",
            "doc": None,
        }
    ]


def test_a_change_without_a_transaction_is_a_broken_log() -> None:
    with pytest.raises(LogCorruptError):
        Commits.of(np.array([9], np.uint32), TRANSACTIONS)


def test_a_table_that_uses_the_envelopes_names_is_refused() -> None:
    taken = table({"id": INT8, "_op": TEXT}, key=["id"])
    with pytest.raises(SchemaChangeError, match="column _op"):
        snapshot_envelope(taken.arrow_schema.empty_table(), taken, 1)
