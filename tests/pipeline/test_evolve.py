"""What became of a column is told by its attnum, never guessed by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wal2lake.columnar.types import TableSchema
from wal2lake.errors import SchemaChangeError
from wal2lake.postgres.live_tables import LiveColumn
from wal2lake.tables.evolve import Present, follow, require_key
from wal2lake.tables.state import Followed, PlannedColumn, SnapshotPlan

BEFORE = Followed({"id": 1, "note": 2}, ("first",))


def schema(*names: str, identity: str = "d", key: str = "id") -> TableSchema:
    columns = ((name, 23, -1, None, name == key or identity == "f") for name in names)
    return TableSchema.build(7, "shop", "item", columns, identity)


def live(**attnums: int) -> Present:
    return Present({name: LiveColumn(attnum, False, False) for name, attnum in attnums.items()}, 2, rewritten=False)


def test_an_added_column_is_known_from_then_on() -> None:
    after = follow(BEFORE, schema("id", "note", "more"), live(id=1, note=2, more=3))
    assert after.attnums == {"id": 1, "note": 2, "more": 3}
    assert after.digests == ("first", schema("id", "note", "more").digest)


def test_a_dropped_column_stays_known() -> None:
    after = follow(BEFORE, schema("id"), live(id=1))
    assert after.attnums == BEFORE.attnums
    assert after.lapsed == ("note",)
    assert follow(after, schema("id"), live(id=1)) == after


def test_a_column_that_was_added_and_is_gone_again_is_added() -> None:
    assert follow(BEFORE, schema("id", "note", "brief"), live(id=1, note=2)).attnums["brief"] == 0


@pytest.mark.parametrize(
    ("names", "now", "message"),
    [
        (("id", "text"), live(id=1, text=2), "note was renamed"),
        (("id", "note"), live(id=1, note=3), "another of the same name"),
        (("id", "text"), live(id=1, word=2), "which is which"),
        (("id", "note", "text"), replace(live(id=1, note=2, text=3), attributes=3), "before it was published"),
    ],
)
def test_what_a_target_cannot_follow_is_refused_with_the_column(
    names: tuple[str, ...], now: dict[str, LiveColumn], message: str
) -> None:
    with pytest.raises(SchemaChangeError, match=message) as failure:
        follow(BEFORE, schema(*names), now)
    assert failure.value.relation == "shop.item"
    assert failure.value.column in ("text", "note")


def plan(key: tuple[str, ...], flagged: str = "", identity: str = "d") -> SnapshotPlan:
    columns = tuple(PlannedColumn(name, at, 23, -1, 23, name == flagged) for at, name in enumerate(("id", "note"), 1))
    return SnapshotPlan("1", 7, identity, "", "", "", key, columns, ())


def test_rows_must_go_on_being_named_by_the_same_columns() -> None:
    require_key(schema("id", "note"), plan(("id",)))
    require_key(schema("id", "note", identity="f"), plan(("id",)))
    require_key(schema("id", identity="n", key=""), plan(("id",)))
    require_key(schema("id", "note"), plan((), flagged="id"))  # "id" is a part of the key, the rest is not published
    for changed, planned in (
        (schema("id", "note", key="note"), plan(("id",))),
        (schema("id", "note"), plan(())),
        (schema("id", "note"), plan((), flagged="id", identity="f")),
        (schema("note", identity="f"), plan(("id",))),
    ):
        with pytest.raises(SchemaChangeError):
            require_key(changed, planned)
