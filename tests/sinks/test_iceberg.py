"""Real Iceberg tables in a catalog of SQLite's: exactly once, columns by ids, read by readers that share nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, StringType

from tests.apply.build import Event, Row, U, changes
from tests.apply.test_fold import ITEM, NOTE, PAIR, counted, histories, model, rows_of
from tests.sinks.test_delta import ROWS, SCHEMA, as_table, folded, land
from tests.sinks.test_parquet import VALUES
from wal2lake.apply.fold import FoldedRows, fold, fold_rows
from wal2lake.columnar import type_table
from wal2lake.config import LakeConfig
from wal2lake.errors import SchemaChangeError, SinkError
from wal2lake.lsn import LSN
from wal2lake.sinks.base import Sink, SinkConflictError, SinkUnavailableError, TargetError
from wal2lake.sinks.factory import open_sink


def opened(folder: Path, pipeline: str = "p", name: str = "item", **lake: Any) -> Sink:
    return open_sink(LakeConfig(path=str(folder), format="iceberg", **lake), pipeline, "shop", name)


def known(sink: Sink) -> Table:
    """The table as pyiceberg alone sees it."""
    *_, lake, namespace, name = sink.uri.rsplit("/", 2)
    return catalog_of(lake).load_table((namespace, name))


def catalog_of(lake: str) -> Catalog:
    return load_catalog("wal2lake", type="sql", uri=f"sqlite:///{lake}/_catalog.db")


def read(sink: Sink) -> list[Row]:
    """What two readers see, pyiceberg and Polars' own."""
    table = known(sink)
    names = [field.name for field in table.schema().fields]
    by_pyiceberg = rows_of(table.scan().to_arrow().select(names))
    by_polars = polars.scan_iceberg(table, reader_override="native").select(names).collect().rows()
    assert sorted(map(repr, by_pyiceberg)) == sorted(map(repr, by_polars))
    assert sink.count_rows() == len(by_pyiceberg)
    return by_pyiceberg


@pytest.fixture(autouse=True)
def plain_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return opened(tmp_path)


@pytest.fixture
def filled(sink: Sink) -> Sink:
    """Ten rows in two files, at LSN 11."""
    land(sink, as_table(ROWS[:5]), 10, None)
    sink.commit_files(sink.write_files(as_table(ROWS[5:]).to_batches(), SCHEMA), LSN(11), SCHEMA, LSN(10))
    return sink


def files(sink: Sink) -> set[str]:
    return {path.name for path in Path(sink.uri, "data").glob("*.parquet")}


def named(sink: Sink) -> set[str]:
    return {Path(task.file.file_path).name for task in known(sink).scan().plan_files()}


def test_nothing_there_is_no_state_and_nothing_is_made_by_looking(sink: Sink, tmp_path: Path) -> None:
    assert (sink.state(), sink.is_gone(), sink.count_rows()) == (None, True, 0)
    with pytest.raises(SinkConflictError, match="does not exist, but 0/A was expected"):
        sink.merge(folded(), 11, 10)
    assert not list(tmp_path.iterdir())


def test_a_table_is_made_with_its_lsn_even_when_empty(sink: Sink) -> None:
    sink.commit_files([], 10, SCHEMA, None, plan_id="abc")
    state = sink.state()
    assert state is not None and not sink.is_gone()
    assert (state.version, state.applied_lsn, state.schema, state.plan_id) == (1, 10, SCHEMA, "000000000abc")
    assert read(sink) == []
    sink.merge(folded(Event("I", ROWS[0])), 12, 10)
    assert read(sink) == [ROWS[0]]
    summary = known(sink).current_snapshot().summary
    assert (summary["wal2lake.pipeline"], summary["wal2lake.lsn"]) == ("p", "0/C")


def test_deletes_upserts_and_key_moves_are_one_commit(filled: Sink) -> None:
    before = len(known(filled).snapshots())
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
        converges_lsn=33,
    )
    moved = [(1, "changed", "doc 1", None), (100, "moved", "doc 2", "b"), (101, "new", None, "")]
    assert sorted(read(filled)) == sorted([*ROWS[4:], *moved, (3, "name 3", "doc 3", "c")])
    assert len(known(filled).snapshots()) == before + 1
    state = filled.state()
    assert state is not None and (state.applied_lsn, state.converges_lsn) == (20, 33)


def test_files_without_a_named_key_are_not_touched(filled: Sink) -> None:
    before = named(filled)
    filled.merge(folded(Event("U", (7, "x", U, U))), 20, 11)
    assert len(before & named(filled)) == 1
    filled.merge(folded(Event("I", (50, "x", "y", "z"))), 21, 20)
    assert len(named(filled)) == 3


def test_what_is_applied_is_not_applied_again(filled: Sink) -> None:
    before = len(known(filled).snapshots())
    filled.merge(folded(Event("D", old=(0, None, None, None))), 11, 10)
    filled.commit_files(filled.write_files(as_table(ROWS).to_batches(), SCHEMA), 11, SCHEMA, 10)
    land(filled, as_table([]), 5, None)
    assert len(known(filled).snapshots()) == before and len(read(filled)) == 10
    with pytest.raises(SinkConflictError, match="stands at 0/B, but 0/C was expected"):
        filled.merge(folded(Event("D", old=(0, None, None, None))), 20, 12)


def test_another_snapshot_is_another_even_where_the_table_stands_at_its_lsn(sink: Sink) -> None:
    first, second = (sink.write_files(as_table(rows).to_batches(), SCHEMA) for rows in (ROWS[:4], ROWS[:7]))
    sink.commit_files(first, 10, SCHEMA, None, plan_id="a1")
    sink.replace_files(first, 10, SCHEMA, 10, plan_id="a1")
    assert len(known(sink).snapshots()) == 1
    sink.merge(folded(Event("D", old=(0, None, None, None))), 11, 10)
    sink.replace_files(first, 10, SCHEMA, 11, plan_id="a1")
    assert len(read(sink)) == 3
    sink.replace_files(second, 9, SCHEMA, 11, plan_id="a2")
    assert sorted(read(sink)) == ROWS[:7]
    state = sink.state()
    assert state is not None and (state.applied_lsn, state.plan_id) == (9, "0000000000a2")


def late(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """The rival commits when ours has written all but what the catalog says."""
    real = SqlCatalog.commit_table

    def commit(self: SqlCatalog, *arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        rival()
        return real(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)


@pytest.mark.parametrize("what", ["merge", "append", "fill", "maintain", "replace"])
def test_a_commit_in_between_makes_ours_fail_and_doubles_nothing(
    filled: Sink, tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival has read no further than its own batch, which ends where no LSN of ours tells a lost answer."""
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 2)
    actions = filled.write_files(as_table([(50, "a", "b", "c")]).to_batches(), SCHEMA)
    late(monkeypatch, lambda: opened(tmp_path).merge(folded(Event("I", (50, "a", "b", "c"))), 15, 11))
    wide = SCHEMA.append(pa.field("n", pa.int32()))
    attempts: dict[str, Callable[[], object]] = {
        "merge": lambda: filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11),
        "append": lambda: filled.commit_files(actions, 20, SCHEMA, 11),
        "fill": lambda: filled.evolve(wide, {"n": pa.scalar(5, pa.int32())}),
        "maintain": filled.maintain,
        "replace": lambda: filled.replace_files(actions, 20, SCHEMA, 11, "b2"),
    }
    with pytest.raises(SinkConflictError, match="meanwhile"):
        attempts[what]()
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]
    assert files(filled) - named(filled) <= {action.path for action in actions}


def test_the_same_batch_twice_at_once_is_one(filled: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = folded(Event("I", (50, "a", "b", "c")))
    late(monkeypatch, lambda: opened(tmp_path).merge(batch, 20, 11))
    filled.merge(batch, 20, 11)
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]
    assert files(filled) == named(filled)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_is_told_from_a_commit_that_is_not_there(
    filled: Sink, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SqlCatalog.commit_table

    def commit(self: SqlCatalog, *arguments: Any) -> Any:
        if arrived:
            real(self, *arguments)
        raise CommitStateUnknownException("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit)
        if arrived:
            filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
        else:
            with pytest.raises(SinkUnavailableError):
                filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
    filled.merge(folded(Event("I", (50, "a", "b", "c"))), 20, 11)
    assert sorted(read(filled)) == [*ROWS, (50, "a", "b", "c")]


def test_two_creators_make_one_table(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path, name="other").commit_files([], 1, SCHEMA, None)  # the catalog is there
    late(monkeypatch, lambda: land(opened(tmp_path), as_table(ROWS), 9, None))
    with pytest.raises(SinkConflictError, match="meanwhile"):
        land(sink, as_table(ROWS), 10, None)
    assert sorted(read(sink)) == ROWS


class Died(BaseException):
    """As a process that is killed."""


@pytest.mark.parametrize("mirror", [pytest.param(True, marks=pytest.mark.formats), False])
def test_a_commit_is_there_whole_or_not_at_all_wherever_it_dies(
    sink: Sink, mirror: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flush of a file or folder, and each commit to the catalog, is the last one once, the commit before or after
    it; the next process does the batch again."""
    land(sink, as_table([(0, "a", "b", "c")]), 10, None)
    left, lsn, landed = 0, 10, []

    def counted(real: Callable[..., Any], after: bool = False) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise Died
            result = real(*arguments, **options)
            left -= after
            if after and left == -1:
                raise Died
            return result

        return call

    def work() -> None:
        if mirror:
            moved = Event("D", old=(lsn - 10, None, None, None))
            sink.merge(folded(Event("I", (lsn - 9, "a", "b", "c")), moved), lsn + 1, lsn)
        else:
            rows = as_table([(lsn - 9, "a", "b", "c")])
            sink.commit_files(sink.write_files(rows.to_batches(), SCHEMA), lsn + 1, SCHEMA, lsn)

    for step in range(200):
        left = step
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", counted(os.fsync))
                patch.setattr(SqlCatalog, "commit_table", counted(SqlCatalog.commit_table, after=True))
                work()
        except Died:
            state = sink.state()
            assert state is not None and state.applied_lsn in (lsn, lsn + 1)
            landed.append(state.applied_lsn > lsn)
            assert sink.count_rows() == (1 if mirror else state.applied_lsn - 9)
        else:
            break
        work()
        lsn += 1
    expected = {lsn - 9} if mirror else set(range(lsn - 8))
    assert {row[0] for row in read(sink)} == expected and len(landed) > 4 and set(landed) == {True, False}


def test_unchanged_toast_of_a_row_that_is_not_there_is_an_error(filled: Sink) -> None:
    with pytest.raises(SinkError, match=r"TOASTed value .*column doc"):
        filled.merge(folded(Event("U", (77, "x", U, "y"))), 20, 11)
    assert sorted(read(filled)) == ROWS and files(filled) == named(filled)


def test_keys_that_are_held(filled: Sink) -> None:
    keys = as_table([(7,), (77,), (0,), (7,)], pa.schema([SCHEMA.field("id")]))
    assert filled.holds(keys).tolist() == [True, False, True, True]
    actions = filled.write_files(as_table(ROWS).to_batches(), SCHEMA)
    left = filled.without(actions, keys, SCHEMA)
    ids = [row[0] for row in rows_of(pa.Table.from_batches(filled.read_files(left, SCHEMA)))]
    assert sorted(ids) == [1, 2, 3, 4, 5, 6, 8, 9]


def test_truncate_and_what_follows_are_one_commit(filled: Sink) -> None:
    filled.merge(folded(Event("I", (70, "a", "b", "c")), Event("T"), Event("I", (1, "x", None, ""))), 20, 11)
    assert read(filled) == [(1, "x", None, "")]
    filled.merge(folded(Event("T")), 21, 20)
    assert read(filled) == []
    filled.merge(folded(), 22, 21)
    filled.merge_pieces(iter(()), 23, 22)
    state = filled.state()
    assert state is not None and state.applied_lsn == 23


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(0, 25), st.booleans())
def test_a_table_ends_where_the_events_end(
    tmp_path_factory: pytest.TempPathFactory,
    history: tuple[dict[Row, Row], list[Event], list[int]],
    cut: int,
    at_once: bool,
) -> None:
    target, events, place = history
    shape = PAIR if len(place) == 2 else ITEM
    key = [shape.columns[i].name for i in place]
    sink = opened(tmp_path_factory.mktemp("iceberg"))
    land(sink, as_table(list(target.values()), shape.arrow_schema), 2, None)
    parts = (events[:cut], events[cut:])
    if at_once:
        sink.merge_pieces((fold([changes(shape, batch)], key) for batch in parts), 4, 2)
    else:
        for lsn, batch in zip((3, 4), parts, strict=True):
            sink.merge(fold([changes(shape, batch)], key), lsn, lsn - 1)
    assert sorted(map(repr, read(sink))) == sorted(map(repr, model(target, events, place).values()))


def test_rows_without_a_key_go_copy_by_copy(sink: Sink) -> None:
    nan = float("nan")
    rows: list[Row] = [("a", 0.0), ("a", -0.0), ("a", nan), ("a", nan), (None, nan), (None, None), ("", None)]
    land(sink, as_table(rows, NOTE.arrow_schema), 2, None)
    gone = [Event("D", old=("a", nan), old_kind="O"), Event("U", ("b", 1.0), (None, nan), "O")]
    net = fold_rows([changes(NOTE, [*gone, Event("I", ("b", 1.0))])])
    sink.merge(net, 3, 2)
    assert sorted(map(repr, read(sink))) == counted(rows, net)
    with pytest.raises(SinkError, match="not a copy"):
        sink.merge(fold_rows([changes(NOTE, [Event("D", old=("never", nan), old_kind="O")])]), 4, 3)


def test_columns_keep_their_ids(filled: Sink) -> None:
    ids = {field.name: field.field_id for field in known(filled).schema().fields}
    wide = pa.schema([*SCHEMA, pa.field("n", pa.int16()), pa.field("m", pa.int32(), metadata={"comment": "says"})])
    filled.evolve(wide, {"m": pa.scalar(5, pa.int32())})
    filled.evolve(wide)
    assert all(row[4:] == (None, 5) for row in read(filled))
    wider = wide.set(4, pa.field("n", pa.int64()))
    written = named(filled)
    filled.evolve(wider)
    filled.evolve(wide)  # narrower ones fit
    assert named(filled) == written
    row = (90, "a", "b", "c", 1 << 40, 6)
    filled.commit_files(filled.write_files(as_table([row], wider).to_batches(), wider), 12, lake(wider), 11)
    assert row in read(filled)
    found = {field.name: field for field in known(filled).schema().fields}
    assert {name: found[name].field_id for name in ids} == ids
    assert found["m"].doc == "says" and found["n"].field_id not in ids.values()
    with pytest.raises(SchemaChangeError, match="changed from int64 to string"):
        filled.evolve(wide.set(0, pa.field("id", pa.string())))


def lake(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, pa.int32() if field.type == pa.int16() else field.type) for field in schema])


def test_a_table_that_is_read_anew_has_other_columns_and_other_rows(filled: Sink) -> None:
    """Columns of another type are others, and what old files hold under their names is not theirs."""
    key = pa.field("id", pa.int64(), nullable=False, metadata={"postgres.key": "1"})
    anew = pa.schema([key, ("more", pa.int32()), ("name", pa.int32()), ("blob", pa.string())], {"comment": "all of it"})
    plain = pa.schema([(field.name, field.type) for field in anew])
    before = {field.name: field.field_id for field in known(filled).schema().fields}
    actions = filled.write_files(as_table([(1, 2, 3, "x")], plain).to_batches(), plain)
    filled.replace_files(actions, 30, anew, 11, plan_id="c3")
    table = known(filled)
    assert table.scan().to_arrow().select(plain.names).to_pylist() == [{"id": 1, "more": 2, "name": 3, "blob": "x"}]
    found = {field.name: field for field in table.schema().fields}
    assert set(found) == set(plain.names)
    assert (found["id"].field_id, found["blob"].field_id) == (before["id"], before["blob"])
    assert found["name"].field_id not in before.values()
    assert found["id"].required and table.schema().identifier_field_ids == [before["id"]]
    [file] = [path for path in Path(filled.uri, "data").glob("*.parquet") if path.name in named(filled)]
    own = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in pq.read_schema(file)}
    assert own == {name: found[name].field_id for name in plain.names}
    old = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()
    assert sorted(old["name"].to_pylist()) == [row[1] for row in ROWS[:5]]


def test_files_that_were_written_for_other_columns_are_written_anew(filled: Sink) -> None:
    """A chunk was read while the table had other columns than when all is read."""
    anew = SCHEMA.append(pa.field("n", pa.int32()))
    early = filled.write_files(as_table([(1, "a", "b", "c", 7)], anew).to_batches(), anew)
    filled.evolve(SCHEMA.append(pa.field("between", pa.int32())))
    filled.replace_files(early, 30, anew, 11, plan_id="c3")
    assert read(filled) == [(1, "a", "b", "c", 7)]


def test_every_row_of_the_type_table_has_a_home(sink: Sink) -> None:
    kinds = {f"{oid}": kind for oid, (_, kind) in type_table.BY_OID.items()}
    values = [VALUES[codec] for codec, _ in type_table.BY_OID.values()]
    lists = {f"list {name}": pa.list_(pa.list_(kind)) for name, kind in kinds.items()}
    struct = pa.struct([("a", pa.int16()), ("d", pa.decimal128(38, 9)), ("m", type_table.HSTORE)])
    schema = pa.schema(
        [("key", pa.int64()), *kinds.items(), *lists.items(), ("s.t", struct), ("map", type_table.HSTORE)]
    )
    full = [1, *values, *([[value, None], None] for value in values), {"a": 1, "d": 2, "m": [("k", None)]},
            [("k", "v"), ("n", None)]]  # fmt: skip
    rows = pa.Table.from_pylist([dict(zip(schema.names, full, strict=True)), {"key": 2}], schema)
    land(sink, rows, 10, None)
    state = sink.state()
    assert state is not None and state.schema.equals(known_types(schema))
    upsert = rows.slice(0, 1).set_column(0, schema.field("key"), pa.array([3]))
    net = FoldedRows(False, pa.concat_tables([upsert, rows.slice(0, 1)]), np.array([2, -1]))
    sink.merge(net, 11, 10)  # found by all that is in it, and written anew
    found = known(sink).scan().to_arrow().sort_by("key").to_pylist()
    assert [row["key"] for row in found] == [2, 3, 3]
    assert {**found[1], "key": 1} == rows.to_pylist()[0]
    assert set(found[0].values()) == {2, None}


def known_types(schema: pa.Schema) -> pa.Schema:
    def kind(one: pa.DataType) -> pa.DataType:
        if pa.types.is_list(one):
            return pa.list_(kind(one.value_type))
        if pa.types.is_struct(one):
            return pa.struct([(field.name, kind(field.type)) for field in one])
        return pa.int32() if one == pa.int16() else one

    return pa.schema([(field.name, kind(field.type)) for field in schema])


def test_names_of_any_kind(tmp_path: Path) -> None:
    folder = tmp_path / "50% é [x] q#{*}"
    sink = open_sink(LakeConfig(path=str(folder), format="iceberg"), "p", "My Schema.x", "50% / ..é")
    schema = pa.schema([("Weird Name", pa.int64()), ("a.b", pa.int32()), ('quo"te`', pa.string())])
    land(sink, as_table([(1, 2, "x")], schema), 1, None)
    sink.merge(fold_like(schema), 2, 1)
    assert catalog_of(str(folder)).list_tables("My~20Schema~2Ex") == [("My~20Schema~2Ex", "50~25~20~2F~20~2E~2E~C3~A9")]
    assert sink.count_rows() == 1
    for names, said in ((("id", "ID"), "case only"), (("a", "a.b"), "name with a dot")):
        other = pa.schema([(names[0], pa.struct([("b", pa.int32())])), (names[1], pa.int32())])
        with pytest.raises((SinkError, SchemaChangeError), match=said):
            opened(folder, name="twins").commit_files([], 1, other, None)


def fold_like(schema: pa.Schema) -> FoldedRows:
    rows = as_table([(1, 2, "x"), (9, 9, "y")], schema)
    return FoldedRows(False, rows, np.array([-1, 1]))


def test_a_foreign_table_is_never_written(filled: Sink, tmp_path: Path) -> None:
    other = opened(tmp_path, "other")
    for attempt in (other.state, other.maintain, lambda: other.merge(folded(), 10, 9)):
        with pytest.raises(TargetError, match="'other' did not make"):
            attempt()
    (tmp_path / "shop" / "files").mkdir()
    (tmp_path / "shop" / "files" / "data.csv").write_text("1,2")
    with pytest.raises(TargetError, match=r"data\.csv"):
        land(opened(tmp_path, name="files"), as_table(ROWS), 10, None)


def test_what_others_commit_is_built_on(filled: Sink) -> None:
    """Another engine's rows and columns are there, and our LSN is that of the nearest snapshot of ours."""
    table = known(filled)
    table.append(as_table([(70, "theirs", None, None)]))
    with table.update_schema() as update:
        update.rename_column("blob", "renamed")
    state = filled.state()
    assert state is not None and state.applied_lsn == 11
    filled.evolve(SCHEMA)  # as the source still has it
    filled.merge(folded(Event("U", (1, "changed", U, "new")), Event("D", old=(2, None, None, None))), 20, 11)
    rows = {row["id"]: row for row in known(filled).scan().to_arrow().to_pylist()}
    assert (rows[1]["name"], rows[1]["blob"], rows[70]["name"], 2 in rows) == ("changed", "new", "theirs", False)
    assert rows[3]["blob"] is None and "renamed" in rows[3]


def test_what_others_expire_and_take_back(filled: Sink) -> None:
    filled.merge(folded(Event("D", old=(0, None, None, None))), 20, 11)
    table = known(filled)
    ours = [snapshot.snapshot_id for snapshot in table.snapshots()]
    table.append(as_table([(70, "theirs", None, None)]))  # as a compaction would, with other rows to know it by
    table.maintenance.expire_snapshots().by_ids(ours[:2]).commit()
    state = filled.state()
    assert state is not None and state.applied_lsn == 20
    table = known(filled)
    table.maintenance.expire_snapshots().by_id(ours[2]).commit()
    state = filled.state()
    assert state is not None and state.applied_lsn == 20
    filled.merge(folded(Event("D", old=(1, None, None, None))), 21, 20)
    filled.merge(folded(Event("D", old=(2, None, None, None))), 22, 21)
    table = known(filled)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[-2].snapshot_id).commit()
    state = filled.state()
    assert state is not None and state.applied_lsn == 21
    filled.merge(folded(Event("D", old=(2, None, None, None))), 22, 21)
    assert sorted(row[0] for row in read(filled)) == [3, 4, 5, 6, 7, 8, 9, 70]


def test_deletes_that_others_marked_are_refused(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFileContent, ManifestEntry

    real = ManifestEntry.data_file

    def as_deletes(entry: ManifestEntry) -> Any:
        file = real.fget(entry)  # type: ignore[attr-defined]
        file[0] = DataFileContent.POSITION_DELETES
        return file

    monkeypatch.setattr(ManifestEntry, "data_file", property(as_deletes))
    with pytest.raises(TargetError, match="delete files"):
        filled.merge(folded(Event("D", old=(1, None, None, None))), 20, 11)


def test_damaged_metadata_are_that_tables_trouble(filled: Sink, tmp_path: Path) -> None:
    place = Path(known(filled).metadata_location)
    whole = place.read_bytes()
    place.write_bytes(whole[:100])
    with pytest.raises(TargetError, match="cannot be read"):
        filled.state()
    place.unlink()
    with pytest.raises(TargetError, match="lost or damaged"):
        filled.state()
    place.write_bytes(whole)
    assert filled.state() is not None
    lists = Path(known(filled).current_snapshot().manifest_list)
    lists.write_bytes(b"Obj\x01")
    with pytest.raises(TargetError):
        opened(tmp_path).merge(folded(Event("D", old=(1, None, None, None))), 20, 11)


def test_dates_prune_files_and_hide_none(sink: Sink) -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])
    days = [datetime(2020, 1, 1, 23, 59, 59, 999999, tzinfo=UTC) + timedelta(days=day) for day in range(4)]
    for place, day in enumerate(days):
        rows = as_table([(day, place)], schema)
        actions = sink.write_files(rows.to_batches(), schema)
        sink.commit_files(actions, place + 1, schema, place or None)
    found = known(sink).scan(row_filter=f"at >= '{days[2].isoformat()}'").to_arrow()
    assert sorted(found["n"].to_pylist()) == [2, 3]
    assert len(list(known(sink).scan(row_filter=f"at >= '{days[2].isoformat()}'").plan_files())) == 2
    assert {type(field.field_type) for field in known(sink).schema().fields} & {IntegerType, StringType} == {
        IntegerType
    }
