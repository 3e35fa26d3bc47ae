"""A Parquet change feed: whole batches, exactly once, whatever dies between any two calls of the file system."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from tests.apply.test_fold import rows_of
from tests.sinks.test_delta import as_table
from wal2lake.apply.fold import FoldedRows
from wal2lake.columnar import type_table
from wal2lake.config import LakeConfig
from wal2lake.errors import ConfigError, SchemaChangeError, SinkError
from wal2lake.lsn import LSN
from wal2lake.sinks import parquet
from wal2lake.sinks.base import Sink, SinkConflictError, TargetError
from wal2lake.sinks.factory import open_sink

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = [(i, f"name {i}") for i in range(10)]


def history(folder: Path, pipeline: str = "p") -> Sink:
    return open_sink(LakeConfig(path=str(folder), mode="append", format="parquet"), pipeline, "shop", "item")


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return history(tmp_path)


@pytest.fixture
def filled(sink: Sink) -> Sink:
    """Ten rows in two batches, at LSN 11."""
    land(sink, ROWS[:5], 10, None)
    land(sink, ROWS[5:], 11, 10)
    return sink


def land(sink: Sink, rows: list[Any], lsn: int, applied: int | None, schema: pa.Schema = SCHEMA) -> None:
    """Each row in a file of its own."""
    actions = [action for row in rows for action in sink.write_files(as_table([row], schema).to_batches(), schema)]
    sink.commit_files(actions, LSN(lsn), schema, None if applied is None else LSN(applied))


def read(sink: Sink) -> list[Any]:
    """What DuckDB, Polars and Arrow see, each by a glob or a folder, as docs/formats.md says."""
    places = f"{sink.uri}/after_lsn=*/*.parquet"
    if not list(Path(sink.uri).glob("after_lsn=*/*.parquet")):
        return []
    with duckdb.connect() as connection:
        relation = connection.sql(f"SELECT * EXCLUDE (after_lsn) FROM read_parquet('{places}', union_by_name = true)")
        by_duckdb = relation.fetchall()
    folder = pyarrow.dataset.dataset(sink.uri, partitioning="hive")
    files = [polars.read_parquet(file, hive_partitioning=False) for file in Path(sink.uri).glob("after_lsn=*/*")]
    by_polars = polars.concat(files, how="diagonal_relaxed").rows()
    assert len(by_duckdb) == len(by_polars) == folder.count_rows() == sink.count_rows()
    by_id = itemgetter(0)
    assert sorted(by_duckdb, key=by_id) == sorted(by_polars, key=by_id)
    return sorted(by_duckdb, key=by_id)


def test_nothing_there_is_no_state(sink: Sink) -> None:
    assert (sink.state(), sink.is_gone(), sink.count_rows()) == (None, True, 0)
    with pytest.raises(SinkConflictError, match="does not exist, but 0/A was expected"):
        land(sink, [], 11, 10)


def test_each_batch_is_a_folder_named_by_where_it_begins(filled: Sink) -> None:
    state = filled.state()
    assert state is not None and not filled.is_gone()
    assert (state.applied_lsn, state.schema, state.plan_id) == (11, SCHEMA, None)
    assert read(filled) == ROWS
    names = sorted(str(file.relative_to(filled.uri)) for file in Path(filled.uri).rglob("*.parquet"))
    assert names[0] == "after_lsn=0/to-10-part-0-rows-1.parquet"
    assert len(names) == 10
    land(filled, [], 12, 11)  # nothing of it came, and that is known
    state = filled.state()
    assert state is not None and state.applied_lsn == 12 and read(filled) == ROWS


def test_what_is_applied_is_not_applied_again(filled: Sink) -> None:
    for lsn, applied in ((11, 10), (5, None)):
        land(filled, ROWS, lsn, applied)
    assert read(filled) == ROWS
    with pytest.raises(SinkConflictError, match="stands at 0/B, but 0/C was expected"):
        land(filled, ROWS, 20, 12)
    with pytest.raises(SinkConflictError, match="none was expected"):
        land(filled, ROWS, 20, None)


@pytest.mark.parametrize("standing", [None, 11])
def test_of_two_that_land_behind_one_lsn_one_is_refused(
    sink: Sink, standing: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the two end: the rival, which comes just before the rename, has read further."""
    if standing:
        land(sink, ROWS, standing, None)
    real = os.rename

    def late(source: Any, place: Any) -> None:
        monkeypatch.setattr(os, "rename", real)
        land(sink, [(50, "rival")], 30, standing)
        real(source, place)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(SinkConflictError, match="meanwhile"):
        land(sink, [(50, "ours")], 20, standing)
    assert read(sink)[len(ROWS) if standing else 0 :] == [(50, "rival")]


class Died(BaseException):
    """As a process that is killed: nothing of it runs on."""


@contextmanager
def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The ``step``-th call that makes, links, renames, removes or flushes something is the last, and is not made."""
    left = step

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("mkdir", "link", "rename", "fsync"):
            patch.setattr(os, name, counted(getattr(os, name)))
        yield


@pytest.mark.parametrize("standing", [None, pytest.param(11, marks=pytest.mark.formats)])
def test_a_batch_lands_whole_or_not_at_all_wherever_it_dies(
    tmp_path: Path, standing: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sorted([*(ROWS if standing else []), (50, "a"), (51, "b"), (52, "c")])
    seen = []
    for step in range(100):
        sink = history(tmp_path / str(step))
        if standing:
            land(sink, ROWS, standing, None)
        actions = sink.write_files(as_table(whole[-3:-1], SCHEMA).to_batches(), SCHEMA)
        actions += sink.write_files(as_table(whole[-1:], SCHEMA).to_batches(), SCHEMA)
        try:
            with dying_at(step, monkeypatch):
                sink.commit_files(actions, 20, SCHEMA, standing, plan_id=None if standing else "abc")
        except Died:
            seen.append(len(read(sink)))
        else:
            break
        rerun = history(tmp_path / str(step))  # from what was staged, as a copy is; a batch's files are written anew
        rerun.commit_files(actions, 20, SCHEMA, standing, plan_id=None if standing else "abc")
        assert read(rerun) == whole
        state = rerun.state()
        assert state is not None and state.applied_lsn == 20
        assert state.plan_id == (None if standing else "000000000abc")
    assert len(seen) > 6 and set(seen) == {len(whole) - 3, len(whole)}


def test_columns_come_and_widen_and_what_has_landed_stays(filled: Sink) -> None:
    before = {file: file.read_bytes() for file in Path(filled.uri).rglob("*.parquet")}
    want = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int16())])
    filled.evolve(want, {"n": pa.scalar(5, pa.int16())})
    filled.evolve(want)
    state = filled.state()
    assert state is not None and (state.applied_lsn, state.schema) == (11, want)
    land(filled, [(20, "more", 7)], 12, 11, want)
    wider = want.set(2, pa.field("n", pa.int64()))
    filled.evolve(wider)
    land(filled, [(21, "more", 1 << 40)], 13, 12, wider)
    old = [(*row, None) for row in ROWS]
    assert read(filled) == [*old, (20, "more", 7), (21, "more", 1 << 40)]
    assert {file: file.read_bytes() for file in before} == before
    with pytest.raises(SchemaChangeError, match="changed from int64 to string"):
        filled.evolve(want.set(0, pa.field("id", pa.string())))
    with pytest.raises(SchemaChangeError, match="columns of those at"):
        land(filled, [(22, "x")], 14, 13)
    with pytest.raises(SchemaChangeError, match="column of this name"):
        land(filled, [], 14, 13, pa.schema([("after_lsn", pa.int64())]))


def test_the_users_own_retention(filled: Sink) -> None:
    """Whole folders may be deleted, the oldest first."""
    (oldest,) = Path(filled.uri).glob("after_lsn=0")
    for file in oldest.iterdir():
        file.unlink()
    oldest.rmdir()
    assert read(filled) == ROWS[5:]
    land(filled, [(20, "more")], 12, 11)
    assert len(read(filled)) == 6


def test_what_is_not_ours_or_is_damaged_is_left_alone(filled: Sink, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="'other' did not land"):
        history(tmp_path, "other").state()
    (tmp_path / "else" / "shop" / "item").mkdir(parents=True)
    (tmp_path / "else" / "shop" / "item" / "data.csv").write_text("1,2")
    with pytest.raises(TargetError, match=r"data\.csv"):
        land(history(tmp_path / "else"), ROWS, 10, None)
    newest = Path(filled.uri, "after_lsn=10", "to-11-part-0-rows-1.parquet")
    newest.rename(newest.with_suffix(".lost"))
    with pytest.raises(TargetError, match="are lost"):
        filled.state()
    newest.with_suffix(".lost").rename(newest)
    (tmp_path / "shop").rename(tmp_path / "moved")
    assert filled.is_gone() and filled.state() is None


def test_what_nobody_landed_goes_after_a_week(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    [kept] = filled.write_files(as_table([(1, "a")], SCHEMA).to_batches(), SCHEMA)
    assert filled.maintain() is None
    assert rows_of(pa.Table.from_batches(filled.read_files([kept], SCHEMA))) == [(1, "a")]
    monkeypatch.setattr("wal2lake.sinks.history.ORPHAN_S", -1)
    filled.maintain()
    assert not list(Path(filled.uri, ".staged").rglob("*.parquet")) and read(filled) == ROWS


def test_a_history_is_no_mirror(filled: Sink, tmp_path: Path) -> None:
    nothing = FoldedRows(False, SCHEMA.empty_table(), pa.array([], pa.int64()).to_numpy())
    for attempt in (
        lambda: filled.merge(nothing, 12, 11),
        lambda: filled.merge_pieces([nothing], 12, 11),
        lambda: filled.replace_files([], 12, SCHEMA, 11),
        lambda: filled.without([], SCHEMA.empty_table(), SCHEMA),
        lambda: filled.holds(SCHEMA.empty_table()),
    ):
        with pytest.raises(SinkError, match="no mirror"):
            attempt()
    with pytest.raises(ConfigError, match="no mirror"):
        LakeConfig(format="parquet")
    with pytest.raises(ConfigError, match="object store"):
        LakeConfig("s3://bucket/lake", mode="append", format="parquet")


VALUES: dict[str, Any] = {
    "bool": True, "bytea": b"\x00\xff", "text": "é\u0000"[:1], "int8": -(1 << 63), "int2": -32768, "int4": 1 << 30,
    "float4": 1.5, "float8": float("-inf"), "date": date(9999, 12, 31), "oid": 4294967295, "time": 86_400_000_000,
    "timestamp": datetime(1, 1, 1, 0, 0, 0, 1), "timestamptz": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "interval": {"months": -1, "days": 2, "microseconds": -3}, "timetz": {"microseconds": 1, "utc_offset": -3600},
    "uuid": "00000000-0000-0000-0000-000000000000", "jsonb": '{"a": 1}', "xid8": Decimal((1 << 64) - 1),
}  # fmt: skip


def test_every_row_of_the_type_table_has_its_type(sink: Sink) -> None:
    kinds = {f"{oid}": kind for oid, (_, kind) in type_table.BY_OID.items()}
    values = [VALUES[codec] for codec, _ in type_table.BY_OID.values()]
    lists = {f"list {name}": pa.list_(pa.list_(kind)) for name, kind in kinds.items()}
    struct = pa.struct([("a", pa.int16()), ("d", pa.decimal128(38, 9)), ("m", type_table.HSTORE)])
    schema = pa.schema([*kinds.items(), *lists.items(), ("struct", struct), ("map", type_table.HSTORE)])
    full = [*values, *([[value, None], None] for value in values), {"a": 1, "d": Decimal("1.5"), "m": [("k", None)]},
            [("k", "v"), ("n", None)]]  # fmt: skip
    rows = pa.Table.from_pylist([dict(zip(schema.names, full, strict=True)), {}], schema)
    sink.commit_files(sink.write_files(rows.to_batches(), schema), 10, schema, None)
    state = sink.state()
    assert state is not None and state.schema.equals(schema)
    [file] = Path(sink.uri).glob("after_lsn=0/*.parquet")
    assert pq.read_table(file, partitioning=None).equals(rows)
    assert parquet.AFTER not in schema.names
