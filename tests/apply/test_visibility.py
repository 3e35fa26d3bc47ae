from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.apply.visibility import visible, widen


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
