from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apply.build import INT8, TEXT, Event, U, changes, table
from wal2lake.apply.visibility import drop_visible, visible, widen

ITEM = table({"id": INT8, "name": TEXT}, key=["id"])


@dataclass(frozen=True)
class Snapshot:
    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()
    bound_lsn: int = 2**63


def seen(xids: list[int], snapshot: Snapshot) -> list[bool]:
    return visible(np.array([x & 0xFFFFFFFF for x in xids], np.uint32), snapshot).tolist()


def test_visible_is_below_xmin_or_below_xmax_and_not_running() -> None:
    assert seen([9, 10, 11, 12, 13, 14], Snapshot(10, 13, (10, 12))) == [True, False, True, False, False, False]


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_xids_are_widened_across_the_epoch(epoch: int) -> None:
    edge = (epoch + 1) << 32
    snapshot = Snapshot(edge - 2, edge + 3, (edge - 2, edge + 1))
    xids = list(range(edge - 4, edge + 5))
    assert seen(xids, snapshot) == [x in {edge - 4, edge - 3, edge - 1, edge, edge + 2} for x in xids]


@given(st.integers(2**31, 2**62), st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_widening_finds_every_xid_within_half_the_circle(near: int, distances: list[int]) -> None:
    wide = [near + d for d in distances]
    narrow = np.array([x & 0xFFFFFFFF for x in wide], np.uint32)
    assert widen(narrow, near).tolist() == wide


def test_changes_of_visible_transactions_go_until_the_bound() -> None:
    events = [
        Event("I", (1, "a")),
        Event("U", (2, U), (1, None)),
        Event("I", (3, "c")),
        Event("I", (4, "d")),
    ]
    found = drop_visible(
        changes(ITEM, events, xid=[5, 12, 5, 5]),
        np.array([100, 100, 100, 200], np.uint64),
        Snapshot(10, 13, (12,), bound_lsn=200),
    )
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


def test_nothing_is_copied_when_nothing_is_visible() -> None:
    batch = changes(ITEM, [Event("I", (1, "a"))], xid=[5])
    assert drop_visible(batch, np.array([200], np.uint64), Snapshot(10, 13, bound_lsn=200)) is batch
    assert drop_visible(batch, np.array([100], np.uint64), Snapshot(5, 5)) is batch
