from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.apply import row_index
from wal2lake.apply.row_index import RowIndex, take

NAN = float("nan")
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, 2, None, -(2**63)]),
    (pa.string(), ["", "a", None, "é", "a\0"]),
    (pa.binary(), [b"", b"\xff", None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, -0.0, NAN, None, 1e300]),
    (pa.float32(), [0.0, -0.0, NAN, None]),
    (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-1.00"), None]),
    (pa.date32(), [date(2000, 1, 1), None]),
    (pa.timestamp("us"), [datetime(2000, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [datetime(2000, 1, 1, tzinfo=UTC), None]),
    (pa.list_(pa.int32()), [[], [None], [1], [1, None], [None, 1], [11], [1, 1], None]),
    (pa.list_(pa.string()), [[], [""], ["", ""], ["a", "b"], ["ab"], ["NULL"], [None], ["a", None, "b"], None]),
    (pa.list_(pa.float64()), [[0.0], [-0.0], [NAN], [NAN, 0.0], None]),
    (pa.list_(pa.binary()), [[b"\0"], [b"\0\0"], [b"\0", b"\0"], [b""], None]),
    (pa.list_(pa.list_(pa.bool_())), [[[True], []], [[], [True]], [[True]], [None], [[None]], [], None]),
    (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
     [{"a": 1, "b": ["x"]}, {"a": None, "b": ["x"]}, {"a": 1, "b": None}, {"a": None, "b": None}, None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else "")
def test_each_value_is_found_as_itself_only(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.table({"a": pa.array(values * 2, kind)})
    index = RowIndex(rows)
    assert index.distinct == len(values)
    assert index.find(rows).tolist() == index.ids.tolist()
    for i in range(len(values)):
        only = RowIndex(rows.slice(i, 1)).find(rows)
        assert np.flatnonzero(only >= 0).tolist() == [i, i + len(values)]


def test_nested_values_of_parts_of_columns_are_found() -> None:
    whole = pa.array([["x"], None, ["a", None], [], ["é"], ["a", None]] * 3, pa.list_(pa.string()))
    part = pa.table({"a": pa.chunked_array([whole.slice(1, 4), whole.slice(7, 5)])})
    index = RowIndex(part)
    assert index.distinct == 4
    assert index.find(pa.table({"a": whole.slice(2, 1)})).tolist() == [index.ids[1]]
    assert take(part, pa.array([1, None, 8]))["a"].to_pylist() == [["a", None], None, ["a", None]]


def test_lists_are_taken_however_large_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "TAKE_BYTES", 64)
    kind = pa.list_(pa.struct([("a", pa.string()), ("n", pa.int32())]))
    rows = [[{"a": "x" * n, "n": n}, None] if n % 4 else None for n in range(20)]
    places = [19, 0, None, 3, 3, *range(20)]
    found = take(pa.table({"l": pa.array(rows, kind)}), pa.array(places))["l"]
    assert found.type == kind
    assert found.num_chunks > 1
    assert found.to_pylist() == [None if place is None else rows[place] for place in places]


cell = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"]))
row = st.tuples(cell, st.one_of(st.none(), st.sampled_from([0.0, -0.0, NAN, 1.0])), st.integers(0, 2))
KINDS = [pa.string(), pa.float64(), pa.int32()]


def bits(value: tuple[Any, ...]) -> str:
    return repr(value)


def as_table(rows: list[tuple[Any, ...]], chunks: int = 1) -> pa.Table:
    whole = pa.table([pa.array([r[i] for r in rows], kind) for i, kind in enumerate(KINDS)], names=["a", "b", "c"])
    step = max(1, len(rows) // chunks)
    return pa.concat_tables([whole.slice(i, step) for i in range(0, len(rows), step)]) if rows else whole


@given(st.lists(row), st.lists(row))
def test_composite_rows_are_found_where_a_dict_finds_them(have: list[Any], ask: list[Any]) -> None:
    index = RowIndex(as_table(have, 3))
    ids: dict[str, int] = {}
    for value, i in zip(have, index.ids.tolist(), strict=True):
        assert ids.setdefault(bits(value), i) == i
    assert len(set(ids.values())) == index.distinct == len(ids)
    assert index.find(as_table(ask, 2)).tolist() == [ids.get(bits(value), -1) for value in ask]
    assert index.ids[index.representatives()].tolist() == list(range(index.distinct))


def test_more_than_an_array_can_hold_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.apply.row_index.TAKE_BYTES", 10)
    words = ["a" * (i % 7) if i % 5 else None for i in range(100)]
    rows = pa.table({"s": pa.chunked_array([words[:50], words[50:]]), "n": range(100)})
    places = np.array([99, 0, 1, 1, 98, *range(50, 90)])
    found = take(rows, places)
    assert found.schema == rows.schema
    assert found.to_pydict() == {"s": [words[i] for i in places], "n": places.tolist()}
    assert found["s"].num_chunks > 5
    assert take(rows, pa.array([None, 3]))["s"].to_pylist() == [None, words[3]]
    assert take(rows, np.empty(0, np.int64)).num_rows == 0
