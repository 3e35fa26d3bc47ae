"""Which types widen to which, and versions of a table laid end to end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.apply.build import INT4, INT8, TEXT, Event, U, changes, table
from wal2lake.apply.unify import unify, widens

NUMBERS = [pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.string()]
WIDER = {
    (pa.int16(), pa.int32()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
}


@pytest.mark.parametrize("narrow", NUMBERS, ids=str)
@pytest.mark.parametrize("wide", [*NUMBERS, pa.bool_()], ids=str)
def test_a_number_widens_to_one_of_its_kind_alone(narrow: pa.DataType, wide: pa.DataType) -> None:
    same_decimal = narrow == wide == pa.decimal128(10, 2)
    assert widens(narrow, wide) == ((narrow, wide) in WIDER or same_decimal)


@pytest.mark.parametrize(
    ("narrow", "wide", "fits"),
    [
        ((10, 2), (11, 2), True),
        ((10, 2), (10, 2), True),
        ((10, 2), (9, 2), False),
        ((10, 2), (12, 3), False),  # 1.00 and 1.000 are two texts
        ((10, 2), (11, 1), False),
        ((5, 5), (6, 5), True),
        ((10, 0), (38, 0), True),
    ],
)
def test_a_decimal_widens_by_digits_before_the_point(
    narrow: tuple[int, int], wide: tuple[int, int], fits: bool
) -> None:
    assert widens(pa.decimal128(*narrow), pa.decimal128(*wide)) is fits


def test_a_column_that_became_narrower_stays_as_wide_as_it_was() -> None:
    wide, narrow = (table({"id": INT8, "n": kind}, key=["id"]) for kind in (INT8, INT4))
    both = [changes(wide, [Event("I", (1, 2**40))]), changes(narrow, [Event("I", (2, 2))])]
    for runs in (both, [*both, both[1]]):
        assert unify(runs).new.schema.types == [pa.int64(), pa.int64()]
    assert unify(both).new["n"].to_pylist() == [2**40, 2]


def test_a_column_that_is_new_is_as_wide_as_it_says() -> None:
    """Whatever the last column of the version before it is."""
    before, after = table({"id": INT8}, key=["id"]), table({"id": INT8, "n": INT4}, key=["id"])
    both = [changes(before, [Event("I", (1,))]), changes(after, [Event("I", (2, 2))])]
    whole = unify(both, {"n": pa.scalar(7, pa.int32())})
    assert whole.new.schema == after.arrow_schema
    assert whole.new.to_pydict() == {"id": [1, 2], "n": [7, 2]}


def test_only_what_follows_the_last_truncate_is_left() -> None:
    item = table({"id": INT8, "doc": TEXT}, key=["id"])
    first = changes(item, [Event("I", (1, "a")), Event("T"), Event("U", (2, U)), Event("T")], lsn=100)
    second = changes(item, [Event("U", (3, U), (4, None)), Event("D", old=(5, None))], lsn=200)
    whole = unify([first, second])
    assert whole.truncated
    assert (bytes(whole.kind), whole.lsn.tolist(), bytes(whole.old_kind)) == (b"UD", [200, 201], b"KK")
    assert whole.new.to_pydict() == {"id": [3, None], "doc": [None, None]}
    assert whole.old.to_pydict() == {"id": [4, 5], "doc": [None, None]}
    assert {name: mask.tolist() for name, mask in whole.unknown.items()} == {"doc": [True, False]}
    assert whole.upserts.tolist() == [True, False]
    alone = unify([second], old=["id"])
    assert (alone.truncated, alone.old.column_names) == (False, ["id"])
    assert np.array_equal(alone.lsn, whole.lsn)
