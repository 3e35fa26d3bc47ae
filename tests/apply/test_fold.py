"""fold + a model target end where applying the events one by one ends, however they are cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apply.build import FLOAT8, INT4, INT8, TEXT, Event, Row, U, changes, table
from wal2lake.apply.fold import Folded, FoldedRows, fold, fold_rows, key_columns
from wal2lake.errors import ProtocolError, SchemaChangeError

ITEM = table({"id": INT8, "name": TEXT, "doc": TEXT, "blob": TEXT}, key=["id"])
PAIR = table({"b": TEXT, "doc": TEXT, "a": INT8}, key=["a", "b"])
Target = dict[Row, Row]


def rows_of(found: pa.Table) -> list[Row]:
    return list(zip(*found.to_pydict().values(), strict=True)) if found.num_columns else []


def merged(target: Target, folded: Folded) -> Target:
    """What any sink must make of a fold."""
    names = folded.upserts.column_names
    place = [names.index(name) for name in folded.key]
    rows = rows_of(folded.upserts)
    own = [tuple(row[i] for i in place) for row in rows]
    sources = rows_of(folded.source_key)
    assert all(source in target or source == (None,) * len(place) for source in sources)
    deletes = rows_of(folded.deletes)
    assert len({*own, *deletes}) == len(own) + len(deletes)
    after = {} if folded.truncated else {k: v for k, v in target.items() if k not in own and k not in deletes}
    for i, row in enumerate(rows):
        for name, mask in folded.unknown.items():
            assert not mask[i] or row[names.index(name)] is None
        unknown = [name in folded.unknown and folded.unknown[name][i] for name in names]
        after[own[i]] = tuple(target[sources[i]][c] if unknown[c] else value for c, value in enumerate(row))
    return after


def key_of(row: Row, place: list[int]) -> Row:
    return tuple(row[i] for i in place)


def model(target: Target, events: list[Event], place: list[int]) -> Target:
    """One event after another, as PostgreSQL's subscriber does."""
    after = dict(target)
    for e in events:
        if e.kind == "T":
            after = {}
        elif e.kind == "D":
            assert e.old is not None
            del after[key_of(e.old, place)]
        elif e.kind == "I":
            assert e.new is not None
            after[key_of(e.new, place)] = e.new
        else:
            assert e.new is not None
            source = key_of(e.old, place) if e.old else key_of(e.new, place)
            before = after.pop(source)
            row = tuple(b if n is U else n for b, n in zip(before, e.new, strict=True))
            after[key_of(row, place)] = row
    return after


@st.composite
def histories(draw: st.DrawFn) -> tuple[Target, list[Event], list[int]]:
    """A target and a history that PostgreSQL could have: keys stay unique, only existing rows change."""
    composite = draw(st.booleans())
    place, width = ([2, 0], 3) if composite else ([0], 4)
    keys = [(n, c) for n in range(3) for c in "xy"] if composite else [(n,) for n in range(6)]
    fresh = iter(range(10**6))

    def row(key: Row) -> Row:
        cells: list[Any] = [draw(st.sampled_from([None, "", f"v{next(fresh)}"])) for _ in range(width)]
        for i, value in zip(place, key, strict=True):
            cells[i] = value
        return tuple(cells)

    def identity(key: Row) -> Row:
        return tuple(key[place.index(i)] if i in place else None for i in range(width))

    def update(before: Row, target_key: Row) -> Event:
        source_key = key_of(before, place)
        moved, verbose = source_key != target_key, draw(st.booleans())
        new = tuple(U if i not in place and draw(st.booleans()) else value for i, value in enumerate(row(target_key)))
        if not moved and verbose and draw(st.booleans()):
            new = tuple(U if i in place else value for i, value in enumerate(new))  # a TOASTed key
        if moved and draw(st.booleans()):  # the part of the key that stays is TOASTed
            new = tuple(U if i in place and value == before[i] else value for i, value in enumerate(new))
        return Event("U", new, identity(source_key) if moved or verbose else None)

    target = {k: row(k) for k in keys if draw(st.booleans())}
    state, events = dict(target), []
    for _ in range(draw(st.integers(0, 25))):
        free = [k for k in keys if k not in state]
        kinds = ["I"] * bool(free) + ["D", "U", "U", "U"] * bool(state) + ["M", "M"] * bool(free and state)
        kind = draw(st.sampled_from([*kinds, "T"])) if draw(st.integers(0, 30)) == 7 else draw(st.sampled_from(kinds))
        if kind == "T":
            event = Event("T")
        elif kind == "I":
            event = Event("I", row(draw(st.sampled_from(free))))
        elif kind == "D":
            event = Event("D", old=identity(draw(st.sampled_from(sorted(state)))))
        else:
            before = state[draw(st.sampled_from(sorted(state)))]
            event = update(before, draw(st.sampled_from(free)) if kind == "M" else key_of(before, place))
        events.append(event)
        state = model(state, [event], place)
    return target, events, place


@settings(max_examples=200, deadline=None)
@given(histories(), st.data())
def test_fold_and_merge_end_where_the_events_end(history: tuple[Target, list[Event], list[int]], data: Any) -> None:
    target, events, place = history
    schema = PAIR if len(place) == 2 else ITEM
    key = [schema.columns[i].name for i in place]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    found = target
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        batch = events[start:stop]
        half = data.draw(st.integers(0, len(batch)))
        found = merged(found, fold([changes(schema, batch[:half]), changes(schema, batch[half:])], key))
    assert found == model(target, events, place)


def test_key_swap_through_a_temporary_key_keeps_each_rows_toast() -> None:
    events = [
        Event("U", (9, "a", U, U), (1, None, None, None)),
        Event("U", (1, "b", U, "new"), (2, None, None, None)),
        Event("U", (2, "a2", U, U), (9, None, None, None)),
    ]
    folded = fold([changes(ITEM, events)], ["id"])
    assert folded.upserts["id"].to_pylist() == [1, 2]
    assert folded.source_key["id"].to_pylist() == [2, 1]
    assert folded.deletes["id"].to_pylist() == [9]
    assert {name: mask.tolist() for name, mask in folded.unknown.items()} == {
        "doc": [True, True],
        "blob": [False, True],
    }


def test_a_long_chain_of_moves_ends_at_its_root() -> None:
    size = 5000
    events = [Event("U", (i + 1, str(i), U, U), (i, None, None, None)) for i in range(size)]
    folded = fold([changes(ITEM, events)], ["id"])
    assert rows_of(folded.upserts) == [(size, str(size - 1), None, None)]
    assert rows_of(folded.source_key) == [(0,)]
    assert folded.deletes.num_rows == size


def test_an_update_after_an_insert_in_the_batch_leaves_nothing_unknown() -> None:
    folded = fold([changes(ITEM, [Event("I", (1, "a", "d", None)), Event("U", (1, "b", U, U))])], ["id"])
    assert rows_of(folded.upserts) == [(1, "b", "d", None)]
    assert not folded.unknown
    assert rows_of(folded.source_key) == [(None,)]


def test_truncate_forgets_the_batch_before_it() -> None:
    folded = fold([changes(ITEM, [Event("I", (1, "a", "d", "b")), Event("T"), Event("I", (2, "x", "y", "z"))])], ["id"])
    assert folded.truncated
    assert rows_of(folded.upserts) == [(2, "x", "y", "z")]
    assert folded.deletes.num_rows == 0
    last = fold([changes(ITEM, [Event("I", (1, "a", "d", "b")), Event("T")])], ["id"])
    assert last.truncated
    assert last.upserts.num_rows == 0
    assert not last.empty


def test_no_changes_fold_to_nothing() -> None:
    assert fold([changes(ITEM, [])], ["id"]).empty
    assert fold_rows([changes(ITEM, [])]).empty


def test_rows_from_before_add_column_take_the_fill() -> None:
    wider = table({"id": INT8, "name": TEXT, "doc": TEXT, "blob": TEXT, "n": INT4, "m": INT4}, key=["id"])
    before = [Event("I", (1, "a", "d", "b")), Event("U", (2, "a", U, "b")), Event("I", (3, "a", "d", "b"))]
    after = [Event("U", (3, "a", U, "b", 5, U)), Event("I", (4, "a", "d", "b", None, None))]
    folded = fold([changes(ITEM, before), changes(wider, after)], ["id"], {"n": pa.scalar(0, pa.int32())})
    assert folded.upserts.schema == wider.arrow_schema
    assert folded.upserts.select(["id", "n", "m"]).to_pylist() == [
        {"id": 1, "n": 0, "m": None},
        {"id": 2, "n": 0, "m": None},
        {"id": 3, "n": 5, "m": None},
        {"id": 4, "n": None, "m": None},
    ]
    assert {name: mask.tolist() for name, mask in folded.unknown.items()} == {"doc": [False, True, False, False]}


def test_a_widened_column_is_cast_and_any_other_change_is_refused() -> None:
    narrow, wide, text = (table({"id": INT4, "n": kind}, key=["id"]) for kind in (INT4, INT8, TEXT))
    both = [changes(narrow, [Event("I", (1, 2))]), changes(wide, [Event("I", (2, 2**40))])]
    assert rows_of(fold(both, ["id"]).upserts) == [(1, 2), (2, 2**40)]
    with pytest.raises(SchemaChangeError, match=r"shop\.item, column n"):
        fold([changes(narrow, [Event("I", (1, 2))]), changes(text, [Event("I", (2, "x"))])], ["id"])


@pytest.mark.parametrize(
    "event",
    [
        Event("I", (None, "a", "b", "c")),
        Event("D"),
        Event("D", old=(None, "a", None, None)),
        Event("U", (U, "a", U, U)),
    ],
)
def test_a_change_that_names_no_key_is_an_error_with_its_lsn(event: Event) -> None:
    with pytest.raises(ProtocolError, match=r"relation shop\.item, LSN 0/65"):
        fold([changes(ITEM, [Event("I", (1, "a", "b", "c")), event])], ["id"])


def test_key_columns_follow_what_old_tuples_carry() -> None:
    assert key_columns(ITEM, ["id"]) == ("id",)
    index = table({"id": INT8, "code": TEXT}, key=["code"], identity="i")
    assert key_columns(index, ["id"]) == ("code",)
    full = table({"id": INT8, "code": TEXT}, key=["id"], identity="f")
    assert key_columns(full, ["id"]) == ("id",)
    assert key_columns(full, []) == ()


NOTE = table({"text": TEXT, "x": FLOAT8}, key=[], identity="f")


@given(
    st.lists(st.tuples(st.sampled_from([None, "", "a"]), st.sampled_from([None, 0.0, -0.0, float("nan")]))), st.data()
)
def test_rows_without_a_key_are_counted(start: list[Row], data: Any) -> None:
    have, events = list(start), []
    for _ in range(data.draw(st.integers(0, 12))):
        value = (data.draw(st.sampled_from([None, "", "a", "b"])), data.draw(st.sampled_from([None, 0.0, 1.0])))
        kind = data.draw(st.sampled_from("IUDT" if have else "I"))
        old = have.pop(data.draw(st.integers(0, len(have) - 1))) if kind in "UD" else None
        have = [] if kind == "T" else have + [value] * (kind in "IU")
        events.append(Event(kind, value if kind in "IU" else None, old, "O"))
    assert counted(start, fold_rows([changes(NOTE, events)])) == sorted(map(repr, have))


def counted(start: list[Row], folded: FoldedRows) -> list[str]:
    have = [] if folded.truncated else [repr(row) for row in start]
    assert (folded.net != 0).all()
    for row, net in zip(rows_of(folded.rows), folded.net.tolist(), strict=True):
        for _ in range(abs(net)):
            have.append(repr(row)) if net > 0 else have.remove(repr(row))
    return sorted(have)


def test_inserts_alone_need_no_old_rows() -> None:
    folded = fold_rows([changes(NOTE, [Event("I", ("a", 1.0)), Event("I", ("a", 1.0))])])
    assert rows_of(folded.rows) == [("a", 1.0)] * 2
    assert np.array_equal(folded.net, [1, 1])


def test_an_update_without_the_whole_old_row_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="REPLICA IDENTITY FULL"):
        fold_rows([changes(NOTE, [Event("U", ("a", 1.0))])])
