from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apply.build import INT8, TEXT, Event, U, changes, table
from wal2lake.apply.visibility import select, visible, widen


@dataclass(frozen=True)
class Snapshot:
    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()


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


ITEM = table({"id": INT8, "doc": TEXT}, key=["id"])
INSERTS = [Event("I", (n, "abc"[n])) for n in range(3)]
UPDATES = [Event("U", (5, U), (1, None)), Event("I", (2, None)), Event("D", old=(3, None), old_kind="O")]


@pytest.mark.parametrize("events", [INSERTS, UPDATES], ids=["nothing old", "old tuples and TOAST"])
@pytest.mark.parametrize("rows", [[], [0], [2], [0, 1], [0, 2], [1, 2], [2, 1, 0], [1, 1, 1]])
def test_selected_changes_are_those_changes(events: list[Event], rows: list[int]) -> None:
    whole = changes(ITEM, events, xid=[7, 8, 9])
    found = select(whole, np.array(rows, np.int64))
    for name in ("kind", "row", "lsn", "xid", "old_kind"):
        assert getattr(found, name).tolist() == [getattr(whole, name)[row] for row in rows]
    for name in ("new", "old"):
        of, columns = getattr(found, name), getattr(whole, name)
        assert (of is None) == (columns is None)
        for own, column in zip(of or (), columns or (), strict=True):
            assert own.to_pylist() == [column[row].as_py() for row in rows]
    assert [mask is None for mask in found.unchanged] == [mask is None for mask in whole.unchanged]
    for mask, every in zip(found.unchanged, whole.unchanged, strict=True):
        assert mask is None or every is None or mask.tolist() == [every[row] for row in rows]


def test_all_of_them_are_the_same_object() -> None:
    whole = changes(ITEM, UPDATES)
    assert select(whole, np.arange(3)) is whole
    assert select(whole, np.arange(2)) is not whole
