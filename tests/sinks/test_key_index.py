"""Through a key index a batch finds the rows that the key columns have, and nothing depends on there being one."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apply.build import Event, U
from tests.sinks.test_delta import ROWS, as_table, folded, land
from wal2lake.apply.fold import Folded
from wal2lake.apply.row_index import RowIndex
from wal2lake.sinks import delta, key_index, key_indexes, rewrite
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.key_index import Wanted, about, open_index, write_index
from wal2lake.sinks.key_numbers import key_numbers
from wal2lake.sinks.retention import Retention

NAN = float("nan")
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int64(): st.one_of(st.integers(-3, 30), st.integers(-(2**63), 2**63 - 1)),
    pa.bool_(): st.booleans(),
    pa.float32(): st.sampled_from([0.0, -0.0, NAN, 1.5, float("-inf")]),
    pa.float64(): st.one_of(st.sampled_from([0.0, -0.0, NAN]), st.floats(-5, 5)),
    pa.decimal128(38, 2): st.integers(-(10**37), 10**37).map(lambda value: Decimal(value) / 100),
    pa.date32(): st.dates(date(1, 1, 1)),
    pa.timestamp("us", "UTC"): st.integers(-(2**50), 2**50),
    pa.string(): st.text(st.sampled_from("aé\0"), max_size=9),
    pa.binary(): st.binary(max_size=9),
    pa.list_(pa.int32()): st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=3),
}
COLUMNS = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3)


@st.composite
def keys(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """The keys of a file's rows, some of them twice, and those that are wanted, some of which are there."""
    kinds = draw(COLUMNS)
    row = st.tuples(*(VALUES[kind] for kind in kinds))
    some = draw(st.lists(row, min_size=1, max_size=12))
    held = draw(st.lists(st.sampled_from(some), min_size=1, max_size=30))
    wanted = draw(st.lists(st.one_of(st.sampled_from(some), row), min_size=1, max_size=20))
    schema = pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])
    return as_table(held, schema), as_table(wanted, schema)


def scan(held: pa.Table, index: RowIndex) -> tuple[list[int], list[int]]:
    of = index.find(held)
    at = np.flatnonzero(of >= 0)
    return at.tolist(), of[at].tolist()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys(), st.sampled_from([1, 7, 1 << 22]), st.sampled_from([64, 3, 0]))
def test_the_index_finds_what_the_columns_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: tuple[pa.Table, pa.Table], run: int, bits: int
) -> None:
    """However few bits a hash has: then many keys have one number, and are told apart by themselves."""
    held, wanted = both
    with monkeypatch.context() as patch:
        patch.setattr(key_index, "RUN_ROWS", run)
        if not key_index.is_own_number(held.schema.types):
            mask = np.uint64((2**64 - 1) << (64 - bits) & (2**64 - 1))
            patch.setattr(key_index, "key_numbers", lambda *of: key_numbers(*of) & mask)
        said = about(list(held.schema), 1, held.num_rows, 5)
        write_index(tmp_path / "i", [held.slice(0, 4), held.slice(4)], held.schema.types, said, 5)
        runs = open_index(tmp_path / "i", said)
        assert runs is not None and sum(found.num_rows for found in runs) == held.num_rows
        index = RowIndex(wanted)
        positions, ids = Wanted(index, wanted, 5).find_in(runs)
        assert (positions.tolist(), ids.tolist()) == scan(held, index)


def test_a_number_is_the_keys_and_no_ones_elses_by_design() -> None:
    """Keys that differ in upper bits, in zeros at the end, and in where one column ends, have other numbers."""
    texts = ["", "\0", "\0\0", "a", "a\0", "a\0\0\0", "a\0\0\0\0", "aaaaaaaa", "aaaabaaa"]
    one = pa.table({"a": [*texts, "x"], "b": ["x", *texts]})
    assert len(set(key_numbers(one, 1).tolist())) == one.num_rows
    high = pa.table({"a": [0, 1 << 63, 0, 1 << 63], "b": [0, 0, 1 << 63, 1 << 63]}, pa.schema({"a": "u8", "b": "u8"}))
    for seed in range(20):
        numbers = key_numbers(high, seed)
        assert len(set((numbers >> np.uint64(22)).tolist())) == 4
    assert key_numbers(one.slice(3, 4), 1).tolist() == key_numbers(one, 1)[3:7].tolist()
    assert key_numbers(one, 2).tolist() != key_numbers(one, 1).tolist()


# -- a table's


@pytest.fixture(autouse=True)
def any_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "MARK_BYTES", 1)


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    sink = DeltaSink(str(tmp_path / "t"), "p", Retention(0, 0, 0), deletion_vectors=True)
    land(sink, as_table(ROWS), 10, None)
    sink.merge(folded(Event("U", (9, "x", "y", None))), 11, 10)
    return sink


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose key columns were looked through, row by row."""
    found: list[str] = []
    real = rewrite.find_in_columns
    monkeypatch.setattr(rewrite, "find_in_columns", lambda *of: found.append(of[1]) or real(*of))
    return found


def ids(sink: DeltaSink) -> list[int]:
    found: list[int] = pa.table(DeltaTable(sink.uri).scan())["id"].to_pylist()
    return sorted(found)


def indexes(sink: DeltaSink) -> set[Path]:
    return set(Path(sink.uri).glob("_wal2lake/*"))


def index_of_the_first(sink: DeltaSink) -> Path:
    return max(indexes(sink), key=lambda path: path.stat().st_size)


def delete(sink: DeltaSink, key: int) -> None:
    state = sink.state()
    assert state is not None
    sink.merge(folded(Event("D", old=(key, None, None, None))), state.applied_lsn + 1, state.applied_lsn)


def harms(path: Path) -> Iterator[Callable[[], object]]:
    whole = path.read_bytes()
    for at in (0, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        yield lambda at=at: path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        yield lambda size=size: path.write_bytes(whole[:size])
    yield lambda: path.write_bytes(bytes(len(whole)))
    yield path.unlink


def test_an_index_that_is_lost_or_damaged_is_made_anew(sink: DeltaSink, scanned: list[str]) -> None:
    path = index_of_the_first(sink)
    whole = path.read_bytes()
    for number, harm in enumerate(harms(path)):
        harm()
        assert sink.holds(as_table([(1,), (9,), (77,)], pa.schema([("id", pa.int32())]))).tolist() == [
            True,
            True,
            False,
        ]
        assert path.read_bytes() == whole, number
    assert not scanned


def test_an_index_of_other_columns_or_of_another_file_is_not_believed(sink: DeltaSink, tmp_path: Path) -> None:
    by_id, by_name = (
        as_table([(3, "name 3")], pa.schema({"id": "i4", "name": "str"})).select([name]) for name in ("id", "name")
    )
    assert sink.holds(by_id).all()
    before = index_of_the_first(sink).read_bytes()
    assert sink.holds(by_name).all()
    assert index_of_the_first(sink).read_bytes() != before
    assert sink.holds(by_id).all()
    other = DeltaSink(str(tmp_path / "o"), "p", deletion_vectors=True)
    land(other, as_table([(i + 50, "a name of its own", "", None) for i in range(10)]), 10, None)
    for path in Path(other.uri).glob("*.parquet"):
        Path(other.uri, "_wal2lake").mkdir()
        index_of_the_first(sink).rename(Path(other.uri, "_wal2lake", f"{path.name}.keys"))
    assert not other.holds(by_id).any()


def test_a_key_with_a_null_and_long_keys_have_no_index_and_are_found(
    tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they have none is noted, and the file is not looked through twice each time."""
    made: list[Path] = []
    monkeypatch.setattr(key_indexes, "write_index", lambda *of: made.append(of[0]) or write_index(*of))
    shape = pa.schema({"k": "str", "n": "i4"})
    for number, rows in enumerate(([(None, 1), ("b", 2)], [("x" * 2000, 1), ("b", 2)])):
        sink = DeltaSink(str(tmp_path / str(number)), "p", deletion_vectors=True)
        land(sink, as_table([*rows, *(("c", i) for i in range(5))], shape), 10, None)
        for _ in range(2):
            assert sink.holds(as_table([("b",)], pa.schema({"k": "str"}))).all()
        assert len(made) == number + 1 and len(scanned) == 2 * (number + 1)
    held = sink.holds(as_table([("x" * 2000,), (None,)], pa.schema({"k": "str"})))
    assert held.tolist() == [True, False]


def test_a_disk_on_which_no_index_can_be_made_costs_time_alone(
    sink: DeltaSink, scanned: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for path in indexes(sink):
        path.unlink()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(key_index.pa.ipc, "new_file", full)
        delete(sink, 3)
    assert "No key index is made" in caplog.text and len(scanned) == 1
    assert not indexes(sink)
    delete(sink, 4)
    assert ids(sink) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_of_a_toasted_column_those_row_groups_are_read_that_have_a_value_in_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wal2lake.sinks.datafiles.ROW_GROUP_ROWS", 3)
    sink = DeltaSink(str(tmp_path / "t"), "p", deletion_vectors=True)
    land(sink, as_table(ROWS), 10, None)
    assert sink.holds(as_table([(9,)], pa.schema([("id", pa.int32())]))).all()  # makes the index
    groups: list[tuple[int, list[str]]] = []
    real = pq.ParquetFile.read_row_group

    def read(file: pq.ParquetFile, group: int, columns: list[str], **how: bool) -> pa.Table:
        groups.append((group, columns))
        return real(file, group, columns=columns, **how)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "read_row_group", read)
        sink.merge(folded(Event("U", (1, "x", U, None)), Event("U", (7, "y", U, None))), 11, 10)
    assert groups == [(0, ["doc"]), (2, ["doc"])]
    rows = {row["id"]: row["doc"] for row in pa.table(DeltaTable(sink.uri).scan()).to_pylist()}
    assert rows == {row[0]: row[2] for row in ROWS}


def test_indexes_go_with_their_files(sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    delete(sink, 3)
    Path(sink.uri, "_wal2lake", ".part-x.keys.1-2.tmp").write_bytes(b"torn")
    assert len(indexes(sink)) == 2
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 2)
    DeltaTable(sink.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(indexes(sink)) == 2
    sink.maintain()
    assert not indexes(sink)
    assert ids(sink) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_a_table_may_be_made_where_indexes_of_another_lie(tmp_path: Path) -> None:
    (tmp_path / "t/_wal2lake").mkdir(parents=True)
    sink = DeltaSink(str(tmp_path / "t"), "p", deletion_vectors=True)
    land(sink, as_table(ROWS), 10, None)
    assert ids(sink) == list(range(10))


def test_random_batches_end_alike_with_and_without_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are damaged, lost and joined meanwhile."""
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 6)
    rng = random.Random(3)
    shape = pa.schema({"b": "str", "a": "i4", "v": "i8"})
    keys = [(f"k{number % 40}", number) for number in range(60)]
    both = [DeltaSink(str(tmp_path / name), "p", deletion_vectors=name == "marks") for name in ("marks", "rewrites")]
    for sink in both:
        land(sink, as_table([(*key, 0) for key in keys[:40]], shape), 1, None)
    for lsn in range(1, 15):
        picked = rng.sample(keys, 8)
        come = as_table([(*key, lsn) for key in picked[:5]], shape)
        gone = as_table([(*key, 0) for key in picked[5:]], shape).select(["b", "a"])
        batch = Folded(("b", "a"), False, come, gone, {}, come.select(["b", "a"]))
        for sink in both:
            if sink.merge(batch, lsn + 1, lsn) or lsn % 5 == 0:
                sink.maintain()
        for path in rng.sample(sorted(indexes(both[0])), min(1, len(indexes(both[0])))):
            path.write_bytes(path.read_bytes()[: rng.choice([0, 50, -1])])
        found = [
            sorted(map(tuple, map(dict.values, pa.table(DeltaTable(sink.uri).scan()).select(shape.names).to_pylist())))
            for sink in both
        ]
        assert found[0] == found[1], lsn
    assert indexes(both[0]) and not indexes(both[1])
