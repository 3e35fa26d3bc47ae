"""A table whose rows are marked is, to every reader, the table whose files are rewritten."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.apply.build import TEXT, TIMESTAMP, Event, Row, changes, table
from tests.apply.test_fold import ITEM, PAIR, histories, model, rows_of
from tests.sinks.test_delta import ROWS, SCHEMA, as_table, folded, land
from tests.sinks.test_delta_retention import HOUR, let_pass
from wal2lake.apply.fold import Folded, FoldedRows, fold
from wal2lake.apply.row_index import RowIndex
from wal2lake.config import LakeConfig
from wal2lake.deltadv.log import DataFile, LiveFiles, data_files
from wal2lake.sinks import commit_log, delta
from wal2lake.sinks.base import SinkConflictError, TargetError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.factory import open_sink
from wal2lake.sinks.retention import Retention


@pytest.fixture(autouse=True)
def any_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "MARK_BYTES", 1)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def marking(uri: str, retention: Retention | None = None) -> DeltaSink:
    return DeltaSink(uri, "p", retention, deletion_vectors=True)


def read(sink: DeltaSink) -> list[Row]:
    """What delta-rs's scan, its SQL and Polars all see."""
    names = [field.name for field in DeltaTable(sink.uri).schema().fields]
    by_delta = rows_of(pa.table(DeltaTable(sink.uri).scan()).select(names))
    by_polars = rows_of(polars.scan_delta(sink.uri).select(names).collect().to_arrow())
    assert sorted(map(repr, by_delta)) == sorted(map(repr, by_polars))
    by_query = QueryBuilder().register("t", DeltaTable(sink.uri)).execute("SELECT count(*) AS n FROM t")
    assert sink.count_rows() == pa.table(by_query)["n"][0].as_py() == len(by_delta)
    return by_delta


def named(sink: DeltaSink) -> dict[str, DataFile]:
    files = pa.fs.SubTreeFileSystem(sink.uri, pa.fs.LocalFileSystem())
    return data_files(files, DeltaTable(sink.uri).version())


def cardinalities(sink: DeltaSink) -> list[int]:
    return sorted(0 if file.vector is None else file.vector.cardinality for file in named(sink).values())


def vectors_on_disk(sink: DeltaSink) -> set[str]:
    return {path.name for path in Path(sink.uri).glob("*.bin")}


def live_vectors(sink: DeltaSink) -> set[str]:
    return {path for file in named(sink).values() if file.vector is not None and (path := file.vector.path)}


@pytest.fixture
def filled(uri: str) -> DeltaSink:
    sink = marking(uri)
    land(sink, as_table(ROWS), 11, None)
    return sink


def test_few_rows_are_marked_and_many_have_their_file_rewritten(filled: DeltaSink) -> None:
    filled.merge(folded(Event("U", (1, "x", "y", None)), Event("D", old=(2, None, None, None))), 12, 11)
    assert cardinalities(filled) == [0, 2]
    [marked] = [file for file in named(filled).values() if file.vector]
    said = json.loads(marked.add["stats"])
    assert (said["numRecords"], said["tightBounds"], said["minValues"]["id"]) == (10, False, 0)
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        DeltaTable(filled.uri).to_pyarrow_table()
    filled.merge(folded(*(Event("D", old=(i, None, None, None)) for i in (3, 4, 5))), 13, 12)
    assert cardinalities(filled) == [0, 0]
    assert sorted(read(filled)) == sorted([(1, "x", "y", None), ROWS[0], *ROWS[6:]])
    assert (DeltaTable(filled.uri).protocol().reader_features or []) == ["deletionVectors"]


@pytest.mark.parametrize("asked", [True, False])
def test_the_setting_says_whether_rows_are_marked(tmp_path: Path, asked: bool) -> None:
    sink = open_sink(LakeConfig(path=str(tmp_path), deletion_vectors=asked), "p", "shop", "item")
    sink.commit_files(sink.write_files(as_table(ROWS).to_batches(), SCHEMA), 11, SCHEMA, None)
    sink.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    assert sink.count_rows() == 9
    assert bool(list(Path(sink.uri).glob("*.bin"))) == asked
    assert LakeConfig().deletion_vectors
    history = open_sink(LakeConfig(path=str(tmp_path), mode="append"), "p", "shop", "history")
    land(history, as_table(ROWS), 11, None)
    assert DeltaTable(history.uri).metadata().configuration["delta.enableDeletionVectors"] == "false"


def test_a_table_that_says_no_is_rewritten_until_it_is_read_anew(uri: str) -> None:
    """As those that were made by a version, or under a setting, without: its readers need know nothing new."""
    DeltaSink(uri, "p").commit_files([], 10, SCHEMA, None)
    sink = marking(uri)
    sink.commit_files(sink.write_files(as_table(ROWS).to_batches(), SCHEMA), 11, SCHEMA, 10)
    sink.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    sink.evolve(SCHEMA.append(pa.field("n", pa.int32())), {"n": pa.scalar(5, pa.int32())})
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 9
    assert DeltaTable(uri).protocol().min_reader_version == 1
    land(sink, as_table(ROWS), 13, 12)
    sink.merge(folded(Event("D", old=(2, None, None, None))), 14, 13)
    assert cardinalities(sink) == [1] and len(read(sink)) == 9
    assert set(DeltaTable(uri).protocol().reader_features or ()) == {"deletionVectors"}


def test_a_user_may_say_yes_or_no_for_one_table(uri: str) -> None:
    for number, (said, made_with) in enumerate([("true", False), ("false", True)]):
        name = f"{uri}{number}"
        land(DeltaSink(name, "p", deletion_vectors=made_with), as_table(ROWS), 11, None)
        DeltaTable(name).alter.set_table_properties({"delta.enableDeletionVectors": said}, raise_if_not_exists=False)
        sink = marking(name)
        sink.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
        assert bool(vectors_on_disk(sink)) == (said == "true")
        assert len(read(sink)) == 9


def test_a_table_in_which_nothing_is_marked_is_read_by_everybody(filled: DeltaSink) -> None:
    assert DeltaTable(filled.uri).protocol().min_reader_version == 1
    filled.merge(folded(Event("I", (50, "x", "y", "z"))), 12, 11)
    assert DeltaTable(filled.uri).to_pyarrow_table().num_rows == 11


def test_a_toasted_value_comes_from_the_row_that_is_alive(filled: DeltaSink) -> None:
    from tests.apply.build import U

    filled.merge(folded(Event("U", (1, "new", "second", None))), 12, 11)
    filled.merge(folded(Event("U", (1, "third", U, None)), Event("U", (8, U, "d", U), (2, None, None, None))), 13, 12)
    found = dict(zip([row[0] for row in read(filled)], read(filled), strict=True))
    assert found[1] == (1, "third", "second", None)
    assert found[8][1] in ("name 2", "name 8")
    with pytest.raises(TargetError, match="TOASTed"):
        filled.merge(folded(Event("U", (2, "x", U, "y"))), 14, 13)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(0, 25), st.booleans(), st.booleans())
def test_a_table_with_vectors_ends_where_the_events_end(
    tmp_path_factory: pytest.TempPathFactory,
    history: tuple[dict[Row, Row], list[Event], list[int]],
    cut: int,
    at_once: bool,
    rewriting_then: bool,
) -> None:
    """In two batches, of which the second may be of a sink that rewrites, or as two pieces of one."""
    target, events, place = history
    shape = PAIR if len(place) == 2 else ITEM
    key = [shape.columns[i].name for i in place]
    sink = marking(str(tmp_path_factory.mktemp("delta")))
    never = [Event("I", (100 + i, "a", "b", "c") if shape is ITEM else ("z", "b", 100 + i)).new for i in range(12)]
    rows = [*target.values(), *never]
    land(sink, as_table(rows, shape.arrow_schema), 2, None)
    whole = {tuple(row[i] for i in place): row for row in rows if row is not None}
    if at_once:
        pieces = (fold([changes(shape, batch)], key) for batch in (events[:cut], events[cut:]))
        sink.merge_pieces(pieces, 4, 2)
    else:
        for lsn, batch in ((3, events[:cut]), (4, events[cut:])):
            last = DeltaSink(sink.uri, "p") if rewriting_then and lsn == 4 else sink
            last.merge(fold([changes(shape, batch)], key), lsn, lsn - 1)
    assert sorted(map(repr, read(sink))) == sorted(map(repr, model(whole, events, place).values()))
    assert vectors_on_disk(sink) >= live_vectors(sink)


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int2": (pa.int16(), [-32768, 0, 32767, *range(1, 20)]),
    "int8": (pa.int64(), [-(2**63), 0, 2**63 - 1, *range(1, 20)]),
    "float8": (pa.float64(), [float("nan"), -0.0, 0.0, float("-inf"), *(i / 7 for i in range(1, 20))]),
    "numeric": (pa.decimal128(38, 2), [Decimal(i * 10**30) / 100 for i in range(-10, 10)]),
    "text": (pa.string(), ["", "é", "e\u0301", "x" * 3000, *(f"k{i}" for i in range(20))]),
    "bytea": (pa.binary(), [b"", b"\0", b"\0\0", *(bytes([i, 255]) for i in range(20))]),
    "bool": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), *(date(2024, 1, i) for i in range(1, 20))]),
    "timestamp": (pa.timestamp("us"), [datetime(2024, 1, 1, 0, 0, 0, i) for i in range(20)]),
    "timestamptz": (pa.timestamp("us", "UTC"), [datetime(1901, 1, i, tzinfo=UTC) for i in range(1, 20)]),
    "array": (pa.list_(pa.int32()), [[], [None], [1], [1, 2], [2, 1], *([i] for i in range(3, 20))]),
}


def _folded(key: list[str], rows: pa.Table, upserts: list[int], deletes: list[int], value: int) -> Folded:
    come = rows.take(pa.array(upserts, pa.int64()))
    come = come.set_column(come.schema.get_field_index("v"), "v", pa.array([value] * len(upserts), pa.int32()))
    return Folded(tuple(key), False, come, rows.select(key).take(pa.array(deletes, pa.int64())), {}, come.select(key))


def test_keys_of_every_type_are_marked_as_they_are_rewritten(tmp_path: Path) -> None:
    """Random batches into two tables, one that marks and one that rewrites: rows, keys and sums, by two readers."""
    for number, (name, (kind, values)) in enumerate(KEYS.items()):
        rng = random.Random(name)
        shape = pa.schema([("k", kind), ("part", pa.int64()), ("v", pa.int32())])
        rows = pa.table([values, list(range(len(values))), [0] * len(values)], schema=shape)
        key = ["part", "k"] if number % 3 == 2 else ["k"]
        marks, rewrites = marking(str(tmp_path / f"{name}-m")), DeltaSink(str(tmp_path / f"{name}-r"), "p")
        for sink in (marks, rewrites):
            land(sink, rows, 1, None)
        alive, most = list(range(len(values))), 0
        for lsn in range(1, 4):
            picked = rng.sample(range(len(values)), min(3, len(values)))
            deletes = [i for i in picked[:1] if i in alive and len(alive) > 1]
            batch = _folded(key, rows, [i for i in picked if i not in deletes], deletes, lsn)
            alive = sorted({*alive, *picked} - {*deletes})
            for sink in (marks, rewrites):
                sink.merge(batch, lsn + 1, lsn)
            most = max(most, *cardinalities(marks))
        assert most > 0 or name == "bool"
        found, expected = (pa.table(DeltaTable(sink.uri).scan()).select(shape.names) for sink in (marks, rewrites))
        assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(expected))), name
        assert sorted(found["part"].to_pylist()) == alive, name
        by_polars = polars.scan_delta(marks.uri).select(polars.len(), polars.col("v").sum()).collect().row(0)
        assert by_polars == (expected.num_rows, sum(expected["v"].to_pylist())), name
        assert marks.holds(rows.select(key)).tolist() == rewrites.holds(rows.select(key)).tolist(), name


def test_rows_without_a_key_go_copy_by_copy(tmp_path: Path) -> None:
    """Equal rows, NULL rows, NaN and −0.0, each as often as it was put, less as often as it was taken."""
    rng = random.Random(1)
    nan = float("nan")
    shape = pa.schema([("a", pa.string()), ("x", pa.float64())])
    kinds: list[Row] = [("a", 0.0), ("a", -0.0), ("a", nan), (None, nan), (None, None), ("", None)]
    sink = marking(str(tmp_path / "t"))
    held = [rng.choice(kinds) for _ in range(40)]
    land(sink, as_table(held, shape), 1, None)
    for lsn in range(1, 7):
        gone = [held.pop(rng.randrange(len(held))) for _ in range(rng.randint(1, 4))]
        come = [rng.choice(kinds) for _ in range(rng.randint(0, 3))]
        held += come
        both = as_table([*come, *gone], shape)
        index = RowIndex(both)
        net = np.bincount(index.ids[: len(come)], minlength=index.distinct)
        net -= np.bincount(index.ids[len(come) :], minlength=index.distinct)
        kept = np.flatnonzero(net)
        sink.merge(FoldedRows(False, both.take(index.representatives()[kept]), net[kept]), lsn + 1, lsn)
        assert sorted(map(repr, read(sink))) == sorted(map(repr, held))
    assert max(cardinalities(sink)) > 0
    with pytest.raises(TargetError, match="not a copy"):
        many = as_table([kinds[0]], shape)
        sink.merge(FoldedRows(False, many, np.array([-41])), 8, 7)


def test_columns_come_and_all_is_replaced_without_the_dead(filled: DeltaSink) -> None:
    filled.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    filled.evolve(SCHEMA.append(pa.field("n", pa.int32())), {"n": pa.scalar(5, pa.int32())})
    assert sorted(read(filled)) == [(*row, 5) for row in ROWS if row[0] != 2]
    assert cardinalities(filled) == [0]
    filled.merge(_narrow(filled, 3), 13, 12)
    filled.evolve(SCHEMA.append(pa.field("n", pa.int32())).append(pa.field("at", pa.timestamp("us"))))
    assert sorted(row[0] for row in read(filled)) == [0, 1, 4, 5, 6, 7, 8, 9]
    assert max(cardinalities(filled)) == 1
    state = filled.state()
    assert state is not None
    land(filled, as_table(ROWS[:4]), 20, state.applied_lsn)
    assert sorted(read(filled)) == ROWS[:4]
    DeltaTable(filled.uri).create_checkpoint()
    assert sorted(read(filled)) == ROWS[:4]


def _narrow(sink: DeltaSink, gone: int) -> Folded:
    state = sink.state()
    assert state is not None
    nothing = state.schema.empty_table()
    return Folded(("id",), False, nothing, pa.table({"id": [gone]}), {}, nothing.select(["id"]))


def test_a_table_that_has_vectors_is_read_with_them_when_none_are_made_any_more(filled: DeltaSink) -> None:
    filled.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    rewriting = DeltaSink(filled.uri, "p")
    assert rewriting.count_rows() == 9
    assert rewriting.holds(as_table([(2,), (3,)], pa.schema([SCHEMA.field("id")]))).tolist() == [False, True]
    rewriting.merge(folded(Event("I", (2, "a", "b", "c")), Event("D", old=(3, None, None, None))), 13, 12)
    assert cardinalities(filled) == [0]
    assert len(read(filled)) == 9
    DeltaTable(filled.uri).create_checkpoint()
    assert len(read(rewriting)) == 9


STEPS: dict[str, tuple[str, bool]] = {
    "before an index": ("wal2lake.sinks.key_indexes.write_index", False),
    "amid an index": ("wal2lake.sinks.key_index._checksum", False),
    "behind an index": ("wal2lake.sinks.key_indexes.write_index", True),
    "before the vectors": ("wal2lake.sinks.commit_log.write_vectors", False),
    "before the commit": ("wal2lake.sinks.folder.create", False),
    "behind the commit": ("wal2lake.sinks.folder.create", True),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("killed", [True, False])
def test_an_end_amid_a_commit_leaves_orphans_at_most(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch, step: str, killed: bool
) -> None:
    """Killed: nothing is tidied up. What was applied is applied once, and what was not is applied again."""
    filled.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    before = {path.name for path in Path(filled.uri).iterdir()}
    shutil.rmtree(Path(filled.uri, "_wal2lake"))
    name, behind = STEPS[step]
    committed = step == "behind the commit"
    module, _, function = name.rpartition(".")
    real: Callable[..., Any] = getattr(__import__(module, fromlist=[function]), function)

    def dies(*args: Any) -> Any:
        if behind:
            real(*args)
        raise KeyboardInterrupt

    batch = folded(Event("U", (3, "x", "y", "z")), Event("D", old=(4, None, None, None)))
    with monkeypatch.context() as patch:
        patch.setattr(name, dies)
        if killed:
            patch.setattr("wal2lake.sinks.folder.Folder.remove", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            filled.merge(batch, 13, 12)
    expected = sorted([*(row for row in ROWS if row[0] not in (2, 3, 4)), (3, "x", "y", "z")])
    assert sorted(read(filled)) == (expected if committed else sorted(row for row in ROWS if row[0] != 2))
    left = {path.name for path in Path(filled.uri).iterdir()} - before
    assert bool(left) == ((killed or committed) and "index" not in step)
    again = marking(filled.uri)
    state = again.state()
    assert state is not None
    assert state.applied_lsn == (13 if committed else 12)
    again.merge(batch, 13, 12)
    assert sorted(read(again)) == expected
    for _ in range(2):  # what the first one writes anew leaves a past of its own
        let_pass(again, 8 * 24 * HOUR)
        again.maintain()
    assert sorted(read(again)) == expected
    assert vectors_on_disk(again) == live_vectors(again)
    assert {path.name for path in Path(again.uri).glob("*.parquet")} == set(named(again))
    assert {path.name for path in Path(again.uri, "_wal2lake").iterdir()} <= {f"{path}.keys" for path in named(again)}


def test_a_commit_in_between_makes_ours_fail_and_doubles_nothing(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = marking(filled.uri)
    real = commit_log.write_vectors

    def late(*args: Any) -> Any:
        monkeypatch.setattr(commit_log, "write_vectors", real)
        rival.merge(folded(Event("U", (1, "a", "b", "c"))), 12, 11)
        return real(*args)

    monkeypatch.setattr(commit_log, "write_vectors", late)
    with pytest.raises(SinkConflictError, match="meanwhile"):
        filled.merge(folded(Event("U", (1, "a", "b", "c"))), 12, 11)
    assert sorted(read(filled)) == sorted([(1, "a", "b", "c"), *(row for row in ROWS if row[0] != 1)])
    assert vectors_on_disk(filled) == live_vectors(filled)
    assert {path.name for path in Path(filled.uri).glob("*.parquet")} == set(named(filled))


def damages(path: Path) -> Iterator[Callable[[], object]]:
    whole = path.read_bytes()
    yield lambda: path.write_bytes(whole[:10] + bytes([whole[10] ^ 1]) + whole[11:])
    yield lambda: path.write_bytes(whole[:-3])
    yield path.unlink


def test_a_vector_that_is_damaged_or_lost_is_the_tables_trouble(filled: DeltaSink) -> None:
    filled.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    for damage in damages(next(Path(filled.uri).glob("*.bin"))):
        damage()
        for sink in (filled, DeltaSink(filled.uri, "p")):
            with pytest.raises(TargetError):
                sink.merge(folded(Event("D", old=(3, None, None, None))), 13, 12)
            with pytest.raises(TargetError):
                sink.evolve(SCHEMA.append(pa.field("n", pa.int32())), {"n": pa.scalar(5, pa.int32())})
    assert DeltaTable(filled.uri).version() == 1


def test_a_file_that_the_log_and_delta_rs_name_differently_is_not_read(
    filled: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.merge(folded(Event("D", old=(2, None, None, None))), 12, 11)
    real = LiveFiles.at
    monkeypatch.setattr(LiveFiles, "at", lambda *of: {f"{path}~": file for path, file in real(*of).items()})
    for sink in (filled, DeltaSink(filled.uri, "p")):
        with pytest.raises(TargetError, match="other files"):
            sink.merge(folded(Event("D", old=(3, None, None, None))), 13, 12)


def test_vectors_of_the_past_stay_and_go_as_the_table_says(uri: str) -> None:
    sink = marking(uri)
    land(sink, as_table([(i, "", "", "") for i in range(100)]), 10, None)
    for lsn in range(10, 15):
        sink.merge(folded(Event("D", old=(lsn, None, None, None))), lsn + 1, lsn)
    let_pass(sink, 23 * HOUR)
    sink.maintain()
    version = DeltaTable(uri).version()
    assert len(vectors_on_disk(sink)) == 5
    for earlier in range(1, 6):
        assert pa.table(DeltaTable(uri, version=earlier).scan()).num_rows == 100 - earlier
    assert version == 5 and len(live_vectors(sink)) == 1
    let_pass(sink, 2 * HOUR)
    assert sink.maintain() is None
    assert vectors_on_disk(sink) == live_vectors(sink)
    assert len(read(sink)) == 95
    sink.merge(folded(Event("D", old=(50, None, None, None))), 16, 15)
    assert len(read(sink)) == 94


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["mark", "mark", "rewrite", "maintain"]), min_size=8, max_size=20))
@example(["mark"] * 8)
def test_who_reads_finds_the_files_for_as_long_as_the_table_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A minute passes between two steps, and removed files are kept for five."""
    sink = marking(str(tmp_path_factory.mktemp("delta")), Retention(300, 1 << 40, 300))
    land(sink, as_table([(i, "", "", "") for i in range(100)]), 10, None)
    readers: list[tuple[int, DeltaTable]] = []  # with the minute in which what they read was replaced
    lsn = 10
    for minute, step in enumerate([*steps, "rewrite", "maintain"]):
        before = DeltaTable(sink.uri)
        let_pass(sink, 60)
        if step == "maintain":
            sink.maintain()
        else:
            ids = [lsn - 10] if step == "mark" else range(40, 100)
            sink.merge(folded(*(Event("U", (i, f"{lsn}", "", "")) for i in ids)), lsn + 1, lsn)
            lsn += 1
            readers.append((minute, before))
        for replaced, reader in readers:
            if minute - replaced < 5:
                assert pa.table(reader.scan()).num_rows == 100


def test_what_is_much_dead_is_rewritten_by_maintenance(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = marking(uri, Retention(0, 0, 0))
    land(sink, as_table([(i, "", "", "") for i in range(100)]), 10, None)
    more = sink.write_files(as_table([(i, "", "", "") for i in range(100, 200)]).to_batches(), SCHEMA)
    sink.commit_files(more, 11, SCHEMA, 10)
    sink.merge(folded(*(Event("D", old=(i, None, None, None)) for i in [*range(30), *range(100, 120)])), 12, 11)
    assert cardinalities(sink) == [20, 30]
    sink.maintain()
    assert cardinalities(sink) == [0, 20]
    assert sorted(row[0] for row in read(sink)) == [*range(30, 100), *range(120, 200)]
    monkeypatch.setattr("wal2lake.sinks.rearrange.SMALL_FILES", 2)
    sink.maintain()
    assert cardinalities(sink) == [0]
    assert sorted(row[0] for row in read(sink)) == [*range(30, 100), *range(120, 200)]
    sink.maintain()
    assert not vectors_on_disk(sink)
    state = sink.state()
    assert state is not None
    assert state.applied_lsn == 12


def test_a_property_that_maintenance_says_brings_no_feature_that_nobody_asked_for(uri: str) -> None:
    """A timestamp without zone gives a table features, and it is used on afterwards by older readers, and by us."""
    shape = table({"id": TEXT, "at": TIMESTAMP}, key=["id"])
    for sink in (DeltaSink(uri, "p", Retention(86_400, 1, 0)), marking(f"{uri}2", Retention(86_400, 1, 0))):
        land(sink, as_table([(str(i), None) for i in range(9)], shape.arrow_schema), 1, None)
        for lsn in range(1, 4):
            sink.merge(fold([changes(shape, [Event("U", ("1", None))])], ["id"]), lsn + 1, lsn)
        before = DeltaTable(sink.uri)
        sink.maintain()
        after = DeltaTable(sink.uri)
        assert set(after.protocol().reader_features or ()) == set(before.protocol().reader_features or ())
        assert after.metadata().configuration != before.metadata().configuration
        assert {**before.metadata().configuration, **after.metadata().configuration} == after.metadata().configuration
        assert len(read(sink)) == 9
