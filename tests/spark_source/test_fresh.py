"""Of a batch's changes those stay that are not applied yet and that the snapshot's rows do not hold."""

from __future__ import annotations

import numpy as np

from tests.apply.build import INT8, TEXT, Event, U, changes, table
from wal2lake.apply.envelope import Commits
from wal2lake.lsn import LSN
from wal2lake.pipeline.apply import not_yet_applied
from wal2lake.postgres.snapshot import SnapshotIdentity
from wal2lake.tables.committed import CommittedChanges

ITEM = table({"id": INT8, "name": TEXT}, key=["id"])
EVENTS = [
    Event("I", (1, "a")),
    Event("U", (2, U), (1, None)),
    Event("I", (3, "c")),
    Event("I", (4, "d")),
]


def committed(events: list[Event], xid: list[int], final_lsn: list[int]) -> CommittedChanges:
    """Each commit record is eight bytes long."""
    final = np.array(final_lsn, np.uint64)
    commits = Commits(final, final + np.uint64(8), np.arange(len(final_lsn), dtype=np.int64))
    return CommittedChanges(changes(ITEM, events, xid=xid), commits)


def snapshot(xmin: int, xmax: int, *xip: int) -> SnapshotIdentity:
    return SnapshotIdentity("00000003-1", xmin, xmax, xip, LSN(200))


def test_changes_of_visible_transactions_go_until_the_bound() -> None:
    kept = not_yet_applied(committed(EVENTS, [5, 12, 5, 5], [100, 100, 100, 200]), 0, snapshot(10, 13, 12))
    found = kept.changes
    assert found.kind.tolist() == [ord("U"), ord("I")]
    assert found.row.tolist() == [1, 3]
    assert found.lsn.tolist() == [101, 103]
    assert found.xid.tolist() == [12, 5]
    assert [column.to_pylist() for column in found.new] == [[2, 4], [None, "d"]]
    assert found.unchanged[0] is None
    assert found.unchanged[1] is not None
    assert found.unchanged[1].tolist() == [True, False]
    assert found.old is not None
    assert [column.to_pylist() for column in found.old] == [[1, None], [None, None]]
    assert found.old_kind.tolist() == [ord("K"), 0]
    assert (kept.commits.final_lsn.tolist(), kept.commits.commit_ts.tolist()) == ([100, 200], [1, 3])


def test_changes_of_applied_transactions_go() -> None:
    found = committed(EVENTS, [5, 6, 7, 8], [100, 110, 120, 130])
    assert not_yet_applied(found, 118, None).changes.row.tolist() == [2, 3]
    assert not_yet_applied(found, 118, snapshot(8, 8)).changes.row.tolist() == [3]


def test_nothing_is_copied_when_nothing_goes() -> None:
    one = committed(EVENTS[:1], [5], [200])
    assert not_yet_applied(one, 0, snapshot(10, 13)) is one
    assert not_yet_applied(one, 207, None) is one
    early = committed(EVENTS[:1], [5], [100])
    assert not_yet_applied(early, 0, snapshot(5, 5)) is early
