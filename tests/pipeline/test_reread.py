"""What the target cannot say comes from the source, and a row that is gone there is passed over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wal2lake.apply.fold import Folded
from wal2lake.tables.reread import complete, key_texts, orphans


def folded(truncated: bool = False) -> Folded:
    """Row 1 is known whole; 2, 3 and 4 take ``big`` from the target, 4 from where it was called 40."""
    return Folded(
        key=("id",),
        truncated=truncated,
        upserts=pa.table({"id": [1, 2, 3, 4], "n": [10, 20, 30, 40], "big": ["a", None, None, None]}),
        deletes=pa.table({"id": [9, 40]}),
        unknown={"big": np.array([False, True, True, True])},
        source_key=pa.table({"id": pa.array([None, 2, 3, 40], pa.int64())}),
    )


def test_orphans_are_masked_rows_whose_source_row_is_not_there() -> None:
    asked: list[list[int]] = []

    def holds(keys: pa.Table) -> np.ndarray:
        asked.append(keys["id"].to_pylist())
        return np.array([True, False, False])

    assert orphans(folded(), holds).tolist() == [False, False, True, True]
    assert asked == [[2, 3, 40]]


def test_they_take_the_values_read_again_and_keep_what_the_change_says() -> None:
    again = pa.table({"id": [4, 3], "n": [-1, -1], "big": ["four", None]})
    done = complete(folded(), np.array([False, False, True, True]), again)
    assert done.upserts.to_pylist() == [
        {"id": 1, "n": 10, "big": "a"},
        {"id": 2, "n": 20, "big": None},
        {"id": 3, "n": 30, "big": None},
        {"id": 4, "n": 40, "big": "four"},
    ]
    assert done.unknown["big"].tolist() == [False, True, False, False]
    assert done.deletes["id"].to_pylist() == [9, 40]


def test_a_row_that_is_gone_is_not_made_up() -> None:
    again = pa.table({"id": pa.array([], pa.int64()), "n": pa.array([], pa.int64()), "big": pa.array([], pa.string())})
    done = complete(folded(), np.array([False, False, True, True]), again)
    assert done.upserts["id"].to_pylist() == [1, 2]
    assert done.source_key["id"].to_pylist() == [None, 2]
    assert sorted(done.deletes["id"].to_pylist()) == [3, 4, 9, 40]


def test_keys_are_written_as_postgresql_reads_them() -> None:
    keys = pa.table({"id": [1], "code": [b"\x01\xff"], "flag": [True]})
    assert key_texts(keys) == [{"id": "1", "code": "\\x01ff", "flag": "True"}]
