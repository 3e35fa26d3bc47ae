"""A large column with NULLs in it taken in pieces; and one change among many that is refused, named by its own LSN."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.apply.build import FLOAT8, INT8, TEXT, Event, U, changes, table
from wal2lake.apply import row_index
from wal2lake.apply.fold import fold, fold_rows
from wal2lake.apply.row_index import RowIndex, take_values
from wal2lake.apply.unify import unify
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import ProtocolError

LIMIT = 10


def pieces(sizes: list[int]) -> list[int]:
    """Rows of each piece: a new one begins with the row with which the next LIMIT bytes are full, but for the last."""
    ends = np.cumsum(sizes)
    cuts = {next(row for row, end in enumerate(ends) if end >= full) for full in range(LIMIT, ends[-1], LIMIT)}
    return np.diff([0, *sorted(cuts - {0}), len(sizes)]).tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize(
    "words",
    [
        ["abc", None, "de", "f", None, None, "ghij", "k", "", None, "lmnopqr", "s"],
        [None] * 30 + ["a" * 9, None, "b"],
        ["a" * 9, "b", "c" * 9],
        [None] * 3,
        ["a" * 25, None, "b" * 25],
    ],
)
def test_nulls_count_for_nothing_where_a_column_is_cut(
    monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, words: list[str | None]
) -> None:
    monkeypatch.setattr(row_index, "TAKE_BYTES", LIMIT)
    column = pa.chunked_array([pa.array(words).cast(kind)])
    for places in (list(range(len(words))), [*range(len(words)), None, 0]):
        found = take_values(column, pa.array(places, pa.int64()))
        wanted = [None if place is None else words[place] for place in places]
        assert found.cast(pa.string()).to_pylist() == wanted
        if column.nbytes >= LIMIT:
            assert [len(chunk) for chunk in found.chunks if len(chunk)] == pieces([len(word or "") for word in wanted])


def test_a_piece_and_one_value_more_fit_into_an_array() -> None:
    """A value has 1 GB at most, and offsets are 32 bits, signed."""
    assert row_index.TAKE_BYTES + (1 << 30) == 1 << 31


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_nothing_is_found_among_no_rows(columns: int) -> None:
    names = [f"c{n}" for n in range(columns)]
    nothing = pa.table({name: pa.array([], pa.string()) for name in names})
    asked = pa.table({name: pa.array(["a", None]) for name in names})
    index = RowIndex(nothing)
    assert (index.distinct, index.find(asked).tolist(), index.representatives().tolist()) == (0, [-1, -1], [])
    assert RowIndex(asked).find(nothing).tolist() == []
    assert RowIndex(asked).find(asked).tolist() == RowIndex(asked).ids.tolist()


ITEM = table({"id": INT8, "name": TEXT}, key=["id"])
NOTE = table({"text": TEXT, "x": FLOAT8}, key=[], identity="f")
GOOD, ALSO_GOOD = Event("I", (1, "a")), Event("U", (1, "b"), (1, None))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Event("D"), "carries no key"),
        (Event("I", (None, "a")), "key is NULL"),
        (Event("U", (2, "a"), (None, None)), "key is NULL"),
        (Event("D", old=(None, "a")), "key is NULL"),
    ],
)
def test_the_first_of_several_that_name_no_key_is_blamed(bad: Event, message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as raised:
        fold([changes(ITEM, [GOOD, ALSO_GOOD]), changes(ITEM, [GOOD, bad, GOOD, bad], lsn=200)], ["id"])
    assert (raised.value.lsn, raised.value.relation) == (201, "shop.item")


@pytest.mark.parametrize(
    "bad",
    [
        Event("U", ("a", 1.0)),
        Event("U", ("a", 1.0), ("b", None), "K"),
        Event("D"),
        Event("D", old=("a", None), old_kind="K"),
        Event("U", (U, 1.0), ("b", 1.0), "O"),
    ],
)
def test_the_first_of_several_without_the_whole_old_row_is_blamed(bad: Event) -> None:
    good = Event("U", ("a", 1.0), ("b", 1.0), "O")
    with pytest.raises(ProtocolError, match="REPLICA IDENTITY FULL") as raised:
        fold_rows([changes(NOTE, [Event("I", ("a", 1.0)), good, bad, good, bad])])
    assert (raised.value.lsn, raised.value.relation) == (102, "shop.item")


def test_a_table_is_called_as_its_newest_version_is() -> None:
    before, after = (TableSchema.build(7, "shop", name, [("id", 20, -1, None, True)]) for name in ("old", "new"))
    whole = unify([changes(before, [Event("I", (1,))]), changes(after, [Event("I", (2,))], lsn=200)])
    assert (whole.relation, whole.truncated, whole.lsn.tolist()) == ("shop.new", False, [100, 200])
    assert str(whole.fail("Wrong.", np.array([1, 0]))) == "Wrong. [relation shop.new, LSN 0/C8]"


def test_toast_of_the_first_column_is_the_targets() -> None:
    note = table({"doc": TEXT, "id": INT8}, key=["id"])
    folded = fold([changes(note, [Event("U", (U, 1)), Event("U", ("x", 2)), Event("U", (U, 2))])], ["id"])
    assert {name: mask.tolist() for name, mask in folded.unknown.items()} == {"doc": [True, False]}
    assert folded.upserts.to_pydict() == {"doc": [None, "x"], "id": [1, 2]}
