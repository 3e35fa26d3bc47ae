"""Real Delta tables: exactly once, TOAST kept, foreign tables left alone."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import create_table_with_add_actions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apply.build import INT8, TEXT, TIMESTAMP, Event, Row, U, changes, table
from tests.apply.test_fold import ITEM, NOTE, PAIR, counted, histories, model, rows_of
from wal2lake.apply.fold import Folded, fold, fold_rows
from wal2lake.errors import LogFullError, SchemaChangeError, SinkError
from wal2lake.lakes import table_uri
from wal2lake.sinks import datafiles
from wal2lake.sinks.base import FileAction, SinkConflictError, SinkUnavailableError, TargetError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.delta_statistics import statistics_json

SCHEMA = ITEM.arrow_schema
ROWS = [(i, f"name {i}", f"doc {i}", None) for i in range(10)]


def as_table(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.table(columns, schema=schema)


def read(sink: DeltaSink) -> list[Row]:
    """What two independent readers, delta-rs and pyarrow over the committed files, both see."""
    delta = DeltaTable(sink.uri)
    names = [field.name for field in delta.schema().fields]
    by_delta = rows_of(pa.table(delta.scan()).select(names))
    assert sorted(map(repr, by_delta)) == sorted(map(repr, rows_of(delta.to_pyarrow_table().select(names))))
    return by_delta


def land(sink: DeltaSink, rows: pa.Table, lsn: int, applied: int | None) -> None:
    """As the pipeline lands what a snapshot has read: a new table, or all rows and columns in the place of others."""
    actions = sink.write_files(rows.to_batches(), rows.schema)
    if applied is None:
        sink.commit_files(actions, lsn, rows.schema, None)
    else:
        sink.replace_files(actions, lsn, rows.schema, applied)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return DeltaSink(table_uri(str(tmp_path), "shop", "item"), "p")


@pytest.fixture
def filled(sink: DeltaSink) -> DeltaSink:
    """Ten rows in two files, at LSN 11."""
    land(sink, as_table(ROWS[:5]), 10, None)
    sink.commit_files(sink.write_files(as_table(ROWS[5:]).to_batches(), SCHEMA), 11, SCHEMA, 10)
    return sink


def folded(*events: Event, key: str = "id") -> Folded:
    return fold([changes(ITEM, events)], [key])


def test_nothing_there_is_no_state(sink: DeltaSink) -> None:
    assert sink.state() is None
    with pytest.raises(SinkConflictError, match="does not exist, but 0/A was expected"):
        sink.merge(folded(), 11, 10)


def test_a_table_is_made_with_its_lsn_even_when_empty(sink: DeltaSink) -> None:
    sink.commit_files([], 10, SCHEMA, None)
    state = sink.state()
    assert state is not None
    assert (state.version, state.applied_lsn, state.schema) == (0, 10, SCHEMA)
    assert read(sink) == []
    sink.merge(folded(Event("I", ROWS[0])), 12, 10)
    assert read(sink) == [ROWS[0]]
    [entry] = DeltaTable(sink.uri).history(1)
    assert (entry["wal2lake.pipeline"], entry["wal2lake.lsn"]) == ("p", "0/C")


def test_deletes_upserts_and_key_moves_are_one_commit(filled: DeltaSink) -> None:
    version = DeltaTable(filled.uri).version()
    filled.merge(
        folded(
            Event("D", old=(0, None, None, None)),
            Event("U", (1, "changed", U, U)),
            Event("U", (100, "moved", U, "b"), (2, None, None, None)),
            Event("I", (101, "new", None, "")),
            Event("U", (3, U, U, "c")),
            Event("D", old=(999, None, None, None)),
        ),
        20,
        11,
    )
    moved = [(1, "changed", "doc 1", None), (100, "moved", "doc 2", "b"), (101, "new", None, "")]
    assert sorted(read(filled)) == sorted([*ROWS[4:], *moved, (3, "name 3", "doc 3", "c")])
    assert DeltaTable(filled.uri).version() == version + 1
    state = filled.state()
    assert state is not None
    assert state.applied_lsn == 20


def test_files_without_a_named_key_are_not_touched(filled: DeltaSink) -> None:
    before = set(DeltaTable(filled.uri).file_uris())
    filled.merge(folded(Event("U", (7, "x", U, U))), 20, 11)
    assert len(before & set(DeltaTable(filled.uri).file_uris())) == 1
    filled.merge(folded(Event("I", (50, "x", "y", "z"))), 21, 20)
    assert len(DeltaTable(filled.uri).file_uris()) == 3


def test_what_is_applied_is_not_applied_again(filled: DeltaSink) -> None:
    version = DeltaTable(filled.uri).version()
    filled.merge(folded(Event("D", old=(0, None, None, None))), 11, 10)
    filled.commit_files(filled.write_files(as_table(ROWS).to_batches(), SCHEMA), 11, SCHEMA, 10)
    land(filled, as_table([]), 5, None)
    assert DeltaTable(filled.uri).version() == version
    assert len(read(filled)) == 10


def test_another_snapshot_is_another_even_where_the_table_stands_at_its_lsn(sink: DeltaSink) -> None:
    first, second = (sink.write_files(as_table(rows).to_batches(), SCHEMA) for rows in (ROWS[:4], ROWS[:7]))
    sink.commit_files(first, 10, SCHEMA, None, plan_id="a1")
    sink.replace_files(first, 10, SCHEMA, 10, plan_id="a1")
    assert DeltaTable(sink.uri).version() == 0
    sink.merge(folded(Event("D", old=(0, None, None, None))), 11, 10)
    DeltaTable(sink.uri).create_checkpoint()
    sink.replace_files(first, 10, SCHEMA, 11, plan_id="a1")
    assert len(read(sink)) == 3
    with pytest.raises(SinkConflictError, match="stands at 0/B, but 0/A was expected"):
        sink.replace_files(second, 9, SCHEMA, 10, plan_id="a2")
    sink.replace_files(second, 9, SCHEMA, 11, plan_id="a2")
    assert sorted(read(sink)) == ROWS[:7]
    state = sink.state()
    assert state is not None
    assert state.applied_lsn == 9


def test_a_batch_that_does_not_start_where_the_table_stands_is_refused(filled: DeltaSink) -> None:
    with pytest.raises(SinkConflictError, match="stands at 0/B, but 0/C was expected"):
        filled.merge(folded(Event("D", old=(0, None, None, None))), 20, 12)
    with pytest.raises(SinkConflictError, match="none was expected"):
        land(filled, as_table([]), 20, None)
    assert SinkConflictError.transient


def test_two_creators_make_one_table(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = DeltaSink(sink.uri, "p")

    def late(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        land(rival, as_table(ROWS), 10, None)
        create_table_with_add_actions(*args, **options)

    monkeypatch.setattr("wal2lake.sinks.delta.create_table_with_add_actions", late)
    with pytest.raises(SinkConflictError, match="created"):
        land(sink, as_table(ROWS), 10, None)
    assert sorted(read(sink)) == ROWS


def test_unchanged_toast_of_a_row_that_is_not_there_is_an_error(filled: DeltaSink) -> None:
    with pytest.raises(SinkError, match=r"TOASTed value .*column doc"):
        filled.merge(folded(Event("U", (77, "x", U, "y"))), 20, 11)
    assert sorted(read(filled)) == ROWS


def test_keys_that_are_held(filled: DeltaSink) -> None:
    keys = as_table([(7,), (77,), (0,), (7,)], pa.schema([SCHEMA.field("id")]))
    assert filled.holds(keys).tolist() == [True, False, True, True]


def test_truncate_and_what_follows_are_one_commit(filled: DeltaSink) -> None:
    filled.merge(folded(Event("I", (70, "a", "b", "c")), Event("T"), Event("I", (1, "x", None, ""))), 20, 11)
    assert read(filled) == [(1, "x", None, "")]
    filled.merge(folded(Event("T")), 21, 20)
    assert read(filled) == []
    filled.merge(folded(), 22, 21)
    state = filled.state()
    assert state is not None
    assert state.applied_lsn == 22


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(0, 25), st.booleans())
def test_a_delta_table_ends_where_the_events_end(
    tmp_path_factory: pytest.TempPathFactory,
    history: tuple[dict[Row, Row], list[Event], list[int]],
    cut: int,
    at_once: bool,
) -> None:
    """In two batches, or as two pieces of one, which leaves no files but the commits'."""
    target, events, place = history
    shape = PAIR if len(place) == 2 else ITEM
    key = [shape.columns[i].name for i in place]
    sink = DeltaSink(str(tmp_path_factory.mktemp("delta")), "p")
    rows = list(target.values())
    land(sink, as_table(rows[:2], shape.arrow_schema), 1, None)
    more = sink.write_files(as_table(rows[2:], shape.arrow_schema).to_batches(), shape.arrow_schema)
    sink.commit_files(more, 2, shape.arrow_schema, 1)
    if at_once:
        pieces = (fold([changes(shape, batch)], key) for batch in (events[:cut], events[cut:]))
        sink.merge_pieces(pieces, 4, 2)
        assert DeltaTable(sink.uri).version() == 2
        assert {path.name for path in Path(sink.uri).glob("*.parquet")} == {
            *(Path(uri).name for version in range(3) for uri in DeltaTable(sink.uri, version=version).file_uris())
        }
    else:
        for lsn, batch in ((3, events[:cut]), (4, events[cut:])):
            sink.merge(fold([changes(shape, batch)], key), lsn, lsn - 1)
    assert sorted(map(repr, read(sink))) == sorted(map(repr, model(target, events, place).values()))


def test_rows_without_a_key_go_copy_by_copy(sink: DeltaSink) -> None:
    nan = float("nan")
    rows: list[Row] = [("a", 0.0), ("a", -0.0), ("a", nan), ("a", nan), (None, nan), (None, None), ("", None)]
    land(sink, as_table(rows[:4], NOTE.arrow_schema), 1, None)
    sink.commit_files(
        sink.write_files(as_table(rows[4:], NOTE.arrow_schema).to_batches(), NOTE.arrow_schema), 2, NOTE.arrow_schema, 1
    )
    net = fold_rows(
        [
            changes(
                NOTE,
                [
                    Event("D", old=("a", nan), old_kind="O"),
                    Event("U", ("b", 1.0), (None, nan), "O"),
                    Event("D", old=("a", -0.0), old_kind="O"),
                    Event("I", ("b", 1.0)),
                ],
            )
        ]
    )
    sink.merge(net, 3, 2)
    assert sorted(map(repr, read(sink))) == counted(rows, net)
    with pytest.raises(SinkError, match="not a copy"):
        sink.merge(fold_rows([changes(NOTE, [Event("D", old=("never", nan), old_kind="O")])]), 4, 3)


def test_pieces_are_one_commit_or_none(filled: DeltaSink) -> None:
    files = set(Path(filled.uri).glob("*.parquet"))

    def pieces() -> Iterator[Folded]:
        yield folded(Event("I", (50, "a", "b", "c")), Event("U", (1, "first", U, U)))
        yield folded(
            Event("D", old=(50, None, None, None)), Event("U", (1, "second", U, U)), Event("U", (7, U, "x", U))
        )
        if broken:
            raise OSError(errno.EIO, "of the log, and not of the table")
        yield folded(Event("T"), Event("I", (60, "a", "b", "c")), Event("I", (61, "a", "b", "c")))
        yield folded(Event("D", old=(61, None, None, None)))

    broken = True
    with pytest.raises(OSError, match="of the log"):
        filled.merge_pieces(pieces(), 20, 11)
    assert set(Path(filled.uri).glob("*.parquet")) == files
    assert sorted(read(filled)) == ROWS
    broken = False
    filled.merge_pieces(pieces(), 20, 11)
    assert read(filled) == [(60, "a", "b", "c")]
    assert len(set(Path(filled.uri).glob("*.parquet")) - files) == 1
    filled.merge_pieces(iter(()), 21, 20)
    state = filled.state()
    assert state is not None
    assert (state.applied_lsn, state.version) == (21, 3)


def test_a_foreign_table_is_never_written(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "delta", as_table(ROWS))
    foreign = DeltaSink(str(tmp_path / "delta"), "p")
    for attempt in (
        foreign.state,
        foreign.maintain,
        lambda: land(foreign, as_table([]), 10, None),
        lambda: foreign.merge(folded(), 10, 9),
    ):
        with pytest.raises(SinkError, match="did not make"):
            attempt()
    other = DeltaSink(str(tmp_path / "mine"), "other")
    land(other, as_table(ROWS), 10, None)
    with pytest.raises(SinkError, match="'p' did not make"):
        DeltaSink(other.uri, "p").state()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "data.csv").write_text("1,2")
    with pytest.raises(SinkError, match=r"data\.csv"):
        land(DeltaSink(str(tmp_path / "files"), "p"), as_table(ROWS), 10, None)


def test_evolve_adds_columns_at_the_end_and_fills_rows_in_the_same_commit(filled: DeltaSink) -> None:
    wider = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("at", pa.timestamp("us")), ("blob", pa.string())])
    filled.evolve(wider, {"n": pa.scalar(5, pa.int32()), "at": pa.scalar(None, pa.timestamp("us"))})
    version = DeltaTable(filled.uri).version()
    assert sorted(read(filled)) == [(*row, 5, None) for row in ROWS]
    filled.evolve(wider, {"n": pa.scalar(6, pa.int32())})
    assert DeltaTable(filled.uri).version() == version
    state = filled.state()
    assert state is not None
    assert state.applied_lsn == 11
    assert state.schema.names == [*SCHEMA.names, "n", "at"]


def test_evolve_without_a_fill_rewrites_nothing(filled: DeltaSink) -> None:
    files = DeltaTable(filled.uri).file_uris()
    filled.evolve(SCHEMA.append(pa.field("at", pa.timestamp("us"))))
    assert DeltaTable(filled.uri).file_uris() == files
    assert sorted(read(filled)) == [(*row, None) for row in ROWS]
    wider = table({"id": INT8, "name": TEXT, "doc": TEXT, "blob": TEXT, "at": TIMESTAMP}, key=["id"])
    filled.merge(fold([changes(wider, [Event("U", (1, "x", "y", "z", U))])], ["id"]), 20, 11)
    assert (1, "x", "y", "z", None) in read(filled)


def test_evolve_widens_and_refuses_the_rest(sink: DeltaSink) -> None:
    narrow = pa.schema([("id", pa.int64()), ("n", pa.int16()), ("x", pa.decimal128(5, 2))])
    wide = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("x", pa.decimal128(12, 2))])
    land(sink, as_table([(1, 2, Decimal("3.10"))], narrow), 1, None)
    sink.evolve(wide)
    sink.evolve(narrow)
    state = sink.state()
    assert state is not None
    assert state.schema == wide
    assert read(sink) == [(1, 2, Decimal("3.10"))]
    with pytest.raises(SchemaChangeError, match="column n"):
        sink.evolve(pa.schema([("id", pa.int64()), ("n", pa.string())]))


def test_a_column_that_is_not_published_keeps_its_values(filled: DeltaSink) -> None:
    filled.evolve(SCHEMA.append(pa.field("kept", pa.string())), {"kept": pa.scalar("k")})
    filled.merge(
        folded(
            Event("U", (1, "x", "y", "z")),
            Event("U", (90, "m", "m", "m"), (2, None, None, None)),
            Event("I", (91, "i", "i", "i")),
            Event("D", old=(3, None, None, None)),
            Event("I", (3, "i", "i", "i")),
        ),
        20,
        11,
    )
    found = {row[0]: row[-1] for row in read(filled)}
    assert [found[i] for i in (0, 1, 90, 91, 3)] == ["k", "k", "k", None, None]


def test_columns_that_the_target_lacks_must_come_by_evolve(filled: DeltaSink) -> None:
    wider = as_table([], SCHEMA.append(pa.field("n", pa.int32())))
    with pytest.raises(SchemaChangeError, match="column n"):
        filled.merge(
            Folded(("id",), False, wider, as_table([]).select(["id"]), {}, as_table([]).select(["id"])), 20, 11
        )
    with pytest.raises(SchemaChangeError, match="Evolve"):
        filled.commit_files([], 20, wider.schema, 11)


def test_every_type_lands_with_bounds_that_hold(sink: DeltaSink) -> None:
    instant = datetime(2024, 5, 6, 7, 8, 9, 123456)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "bool": (pa.bool_(), [True, None]),
        "int2": (pa.int16(), [-1, None]),
        "int8": (pa.int64(), [-(2**63), 2**63 - 1]),
        "float4": (pa.float32(), [float("nan"), 1.0]),
        "float8": (pa.float64(), [float("inf"), None]),
        "numeric": (pa.decimal128(38, 10), [Decimal("-1e-10"), Decimal("9e27")]),
        "text": (pa.string(), ["x" * 100, "a"]),
        "bytea": (pa.binary(), [b"\xff", b""]),
        "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        "ts": (pa.timestamp("us"), [instant, None]),
        "tz": (pa.timestamp("us", "UTC"), [instant.replace(tzinfo=UTC), datetime(1960, 1, 1, 0, 0, 0, 1, UTC)]),
        "none": (pa.string(), [None, None]),
    }
    rows = pa.table({name: pa.array(cells, kind) for name, (kind, cells) in values.items()})
    [action] = sink.write_files(rows.to_batches(), rows.schema)
    assert set(action.low) == {"int2", "int8", "numeric", "text", "date", "ts", "tz"}
    assert (action.low["numeric"], action.high["numeric"]) == (-1, 9 * 10**37)
    assert (action.low["date"], action.high["date"]) == (-719_162, 2_932_896)
    assert (action.low["ts"], action.low["tz"]) == (action.high["ts"], -3653 * 86_400_000_000 + 1)
    sink.commit_files([FileAction(**json.loads(json.dumps(asdict(action))))], 1, rows.schema, None)
    stats = json.loads(statistics_json(action, rows.schema))
    assert stats["numRecords"] == action.rows == 2
    assert stats["nullCount"] == {n: sum(c is None for c in cells) for n, (_, cells) in values.items()}
    assert set(stats["minValues"]) == {"int2", "int8", "text", "date", "ts", "tz"}
    assert stats["maxValues"]["text"] == "x" * 32 + "\U0010ffff"
    assert (stats["minValues"]["ts"], stats["maxValues"]["ts"]) == (
        "2024-05-06T07:08:09.123",
        "2024-05-06T07:08:09.124",
    )
    assert stats["minValues"]["tz"] == "1960-01-01T00:00:00.000Z"
    delta = DeltaTable(sink.uri)
    assert pa.table(delta.scan()).cast(rows.schema).equals(rows) or repr(read(sink)) == repr(rows_of(rows))
    for filters in ([("text", "=", "x" * 100)], [("ts", "=", instant)], [("int8", ">", 0)], [("float4", ">", 5.0)]):
        delta.to_pyarrow_table(filters=filters)
    found = delta.to_pyarrow_table(filters=[("ts", "=", instant)])
    assert found.num_rows == 1
    assert delta.to_pyarrow_table(filters=[("text", "=", "x" * 100)]).num_rows == 1


def test_nested_columns_lie_beside_flat_ones_of_any_name(sink: DeltaSink) -> None:
    """Parquet calls the elements of x x.list.element, and the field a of s s.a."""
    plain = pa.table({"x.list.element": pa.array([5, 9], pa.int32())})
    sink.commit_files(sink.write_files(plain.to_batches(), plain.schema), 1, plain.schema, None)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "x": (pa.list_(pa.timestamp("us")), [[datetime(2024, 1, 1), None], None]),
        "x.list.element": (pa.int32(), [5, 9]),
        "s": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": [""]}, None]),
        "s.a": (pa.string(), ["k", "m"]),
        "after": (pa.int64(), [-7, None]),
    }
    rows = pa.table({name: pa.array(cells, kind) for name, (kind, cells) in values.items()})
    [action] = sink.write_files(rows.to_batches(), rows.schema)
    assert action.low == {"x.list.element": 5, "s.a": "k", "after": -7}
    assert action.high == {"x.list.element": 9, "s.a": "m", "after": -7}
    assert action.nulls == {"x.list.element": 0, "s.a": 0, "after": 1}
    sink.replace_files([action], 2, rows.schema, 1)
    state = sink.state()
    assert state is not None
    assert state.schema == rows.schema
    assert pa.table(DeltaTable(sink.uri).scan()).cast(rows.schema).to_pylist() == rows.to_pylist()


def test_large_input_becomes_several_files_of_several_row_groups(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr(datafiles, "FILE_BYTES", 20_000)
    rows = pa.table({"id": pa.array(np.random.default_rng(1).permutation(10_000))})
    actions = sink.write_files(rows.to_batches(max_chunksize=300), rows.schema)
    assert len(actions) == 2
    sink.commit_files(actions, 1, rows.schema, None)
    groups = [pq.ParquetFile(Path(sink.uri) / action.path).num_row_groups for action in actions]
    assert max(groups) > 1
    assert sorted(DeltaTable(sink.uri).to_pyarrow_table()["id"].to_pylist()) == list(range(10_000))


def test_maintain_joins_small_files_and_keeps_rows_and_lsn(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 8)
    sink.commit_files([], 1, SCHEMA, None)
    for i in range(8):
        sink.merge(folded(Event("I", (i, "a", "b", "c"))), i + 2, i + 1)
    before = sorted(read(sink))
    sink.maintain()
    state = sink.state()
    assert state is not None
    assert state.applied_lsn == 9
    assert len(DeltaTable(sink.uri).file_uris()) == 1
    assert sorted(read(sink)) == before
    assert len(list(Path(sink.uri).glob("*.parquet"))) == 9


@pytest.mark.parametrize("appending", [False, True])
def test_maintenance_is_due_once_after_so_many_versions_whoever_made_them(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch, appending: bool
) -> None:
    """Where a count by numbers waits for 6, 12 … the commit of an evolve takes some of them."""
    monkeypatch.setattr("wal2lake.sinks.delta.MAINTAIN_EVERY", 6)
    due: list[int] = []
    columns = SCHEMA
    for lsn in range(12, 24):
        if lsn % 3 == 0:
            columns = columns.append(pa.field(f"more {lsn}", pa.int64()))
            filled.evolve(columns)
        if appending:
            rows = pa.table([pa.array([None], field.type) for field in columns], columns)
            now = filled.commit_files(filled.write_files(rows.to_batches(), columns), lsn, columns, lsn - 1)
        else:
            now = filled.merge(folded(Event("I", (lsn, "a", "b", None))), lsn, lsn - 1)
        if now:
            due.append(DeltaTable(filled.uri).version())
            filled.maintain()
    assert len(due) == 2
    assert all(6 <= later - earlier <= 7 for earlier, later in zip([0, *due], due, strict=False))


def test_files_of_a_write_that_fails_are_removed(filled: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in Path(filled.uri).glob("*.parquet"))
    monkeypatch.setattr(datafiles, "ROW_GROUP_ROWS", 3)
    monkeypatch.setattr(datafiles, "FILE_BYTES", 1)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from as_table(ROWS).to_batches(max_chunksize=3)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):  # it is not the table that the rows' maker speaks of
        filled.write_files(broken(), SCHEMA)
    assert sorted(path.name for path in Path(filled.uri).glob("*.parquet")) == before


def test_a_lost_data_file_is_one_plain_sentence(filled: DeltaSink) -> None:
    for file in Path(filled.uri).glob("*.parquet"):
        file.unlink()
    with pytest.raises(TargetError) as caught:
        filled.merge(folded(Event("D", old=(0, None, None, None))), 20, 11)
    assert "\n" not in str(caught.value)
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, LogFullError),
        (errno.EDQUOT, LogFullError),
        (errno.EMFILE, SinkUnavailableError),
        (errno.EIO, SinkUnavailableError),
        (errno.ESTALE, SinkUnavailableError),
        (errno.ETIMEDOUT, SinkUnavailableError),
        (errno.EROFS, SinkError),
        (errno.EACCES, SinkError),
    ],
)
@pytest.mark.parametrize("by_delta", [False, True])
def test_only_what_is_wrong_with_this_table_is_its_own(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], by_delta: bool
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise DeltaError(f"Generic LocalFileSystem error: … (os error {number})") if by_delta else OSError(number, "…")

    monkeypatch.setattr("wal2lake.sinks.delta.write_data_files", fails)
    with pytest.raises(kind) as caught:
        filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
    assert type(caught.value) is kind
    assert sorted(read(filled)) == ROWS
