"""Which items share a task of Spark's, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from wal2lake.spark.jobs import items_at_once, packed


@dataclass
class Item:
    weight: int


MIB = 1 << 20


@pytest.mark.parametrize(
    ("weights", "cores", "expected"),
    [
        ([], 2, []),
        ([1], 2, [1]),
        ([1] * 2, 2, [1, 1]),
        ([1] * 20, 2, [10, 10]),
        ([1] * 100, 2, [16] * 6 + [4]),
        ([64 * MIB] * 5, 2, [1] * 5),
        ([20 * MIB, 10 * MIB, 10 * MIB, 40 * MIB], 2, [2, 1, 1]),
        ([1, 1, 64 * MIB, 1], 2, [2, 1, 1]),
    ],
)
def test_light_items_are_packed_in_order(weights: list[int], cores: int, expected: list[int]) -> None:
    items = [Item(weight) for weight in weights]
    packs = packed(items, cores)
    assert [len(pack) for pack in packs] == expected
    assert [item for pack in packs for item in pack] == items


def test_what_says_no_weight_has_a_task_to_itself() -> None:
    assert packed(["a", "b", "c"], 2) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(("cores", "items"), [(1, 4), (2, 4), (4, 4), (5, 3), (8, 2), (16, 1), (64, 1)])
def test_the_more_cores_the_fewer_items_at_once(cores: int, items: int) -> None:
    assert items_at_once(cores) == items
