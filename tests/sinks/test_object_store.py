"""A table in an object store is the table in a folder, whatever the store answers, or does not.

The store is of this process: whatever kept Python's lock while it asks would wait for ever.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.apply.build import Event, Row
from tests.apply.test_fold import rows_of
from tests.s3 import SECRET, Fault, S3Server
from tests.sinks.test_delta import ROWS, SCHEMA, as_table, folded
from wal2lake import lakes, object_stores
from wal2lake.config import LakeConfig
from wal2lake.errors import AuthError
from wal2lake.sinks import delta
from wal2lake.sinks.base import SinkConflictError, SinkUnavailableError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.sinks.factory import open_sink
from wal2lake.sinks.folder import Folder
from wal2lake.sinks.retention import Retention
from wal2lake.sinks.sink_errors import LakeRefusesError
from wal2lake.tables.failures import TABLE_ERRORS

ADDED = SCHEMA.append(pa.field("n", pa.int32()))


@pytest.fixture(autouse=True)
def any_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "MARK_BYTES", 1)


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path) -> LakeConfig:
    return LakeConfig(path=s3.url(f"{tmp_path.name}/lake"), local_path=str(tmp_path / "local"))


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again once, and at once."""
    monkeypatch.setattr(object_stores, "RETRIES", 1)
    monkeypatch.setitem(lakes.RETRIES, "max_retries", "1")
    monkeypatch.setitem(lakes.RETRIES, "backoff_config.init_backoff", "10ms")


def opened(lake: LakeConfig) -> DeltaSink:
    """As another process would."""
    sink = open_sink(lake, "p", "shop", "item")
    assert isinstance(sink, DeltaSink)
    return sink


def read(sink: DeltaSink, lake: LakeConfig | None = None) -> list[Row]:
    options = None if lake is None else lake.place.storage_options()
    return sorted(rows_of(pa.table(DeltaTable(sink.uri, storage_options=options).scan())), key=repr)


def until_applied(sink: Callable[[], DeltaSink], lsn: int, work: Callable[[DeltaSink, int | None], object]) -> None:
    """As the pipeline does: where the table stands is read again before each try."""
    for _ in range(50):
        try:
            state = sink().state()
            if state is not None and state.applied_lsn >= lsn:
                return
            work(sink(), None if state is None else state.applied_lsn)
        except (SinkConflictError, SinkUnavailableError):
            continue
    raise AssertionError(f"{lsn} is not applied")


def history(rng: random.Random) -> Iterator[Callable[[DeltaSink, int, int | None], object]]:
    """What is done to a table, step by step; each is given the sink, the LSN, and where the table stands."""

    def begin(sink: DeltaSink, lsn: int, applied: int | None) -> object:
        files = sink.write_files(as_table(ROWS).to_batches(), SCHEMA)
        return sink.commit_files(files, lsn, SCHEMA, applied, "00000000000a")

    def anew(sink: DeltaSink, lsn: int, applied: int | None) -> object:
        assert applied is not None
        rows = as_table([*ROWS[:5], (77, "p", "q", "r")])
        return sink.replace_files(sink.write_files(rows.to_batches(), SCHEMA), lsn, SCHEMA, applied, "00000000000b")

    def change(events: list[Event]) -> Callable[[DeltaSink, int, int | None], object]:
        def merge(sink: DeltaSink, lsn: int, applied: int | None) -> object:
            assert applied is not None
            return sink.merge(folded(*events), lsn, applied)

        return merge

    yield begin
    for step in range(6):
        keys = rng.sample(range(12), 2)
        yield change([Event("I", (keys[0], f"step {step}", "b", "c")), Event("D", old=(keys[1], None, None, None))])
        if step == 3:
            yield anew
    yield change([Event("T")])
    yield change([Event("I", (1, "x", "y", "z"))])


@pytest.mark.parametrize("seed", range(1))
def test_whatever_is_answered_the_rows_are_those_of_a_folder(
    s3: S3Server, lake: LakeConfig, tmp_path: Path, once: None, seed: int
) -> None:
    rng, chance = random.Random(seed), random.Random(seed + 100)
    local = DeltaSink(str(tmp_path / "t"), "p", deletion_vectors=True)
    met: set[Fault] = set()

    def fault(method: str, path: str) -> Fault | None:
        if tmp_path.name not in path or chance.random() > 0.1:
            return None
        met.add(chosen := chance.choice(("503", "lost")))
        return chosen

    for number, step in enumerate(history(rng)):
        lsn = 10 + number
        before = local.state()
        step(local, lsn, None if before is None else before.applied_lsn)
        s3.fault = fault
        try:
            until_applied(lambda: opened(lake), lsn, lambda sink, applied, step=step, lsn=lsn: step(sink, lsn, applied))
            if number % 5 == 4:
                with_patience(lambda: opened(lake).maintain())
        finally:
            s3.fault = lambda *_: None
        assert read(opened(lake), lake) == read(local), f"step {number}"
        table = DeltaTable(opened(lake).uri, storage_options=lake.place.storage_options())
        assert table.transaction_version("wal2lake:p") == lsn
    assert met == {"503", "lost"}
    assert opened(lake).count_rows() == local.count_rows() == 1


def with_patience(work: Callable[[], object]) -> None:
    for _ in range(20):
        try:
            work()
        except (SinkConflictError, SinkUnavailableError):
            continue
        return
    raise AssertionError("it never ended well")


def test_a_commit_whose_answer_is_lost_counts(s3: S3Server, lake: LakeConfig) -> None:
    sink = opened(lake)
    files = sink.write_files(as_table(ROWS).to_batches(), SCHEMA)
    steps: list[Callable[[], object]] = [
        lambda: sink.commit_files(files, 10, SCHEMA, None),
        lambda: sink.commit_files(sink.write_files(as_table(ROWS[:1]).to_batches(), SCHEMA), 11, SCHEMA, 10),
        lambda: sink.merge(folded(Event("D", old=(2, None, None, None))), 12, 11),
        lambda: sink.merge(folded(Event("I", (20, "a", "b", "c"))), 13, 12),
        lambda: sink.evolve(ADDED),
    ]
    for version, step in enumerate(steps):
        with s3.failing("lost", name=f"_delta_log/{version:020d}.json"):
            step()
        assert DeltaTable(sink.uri, storage_options=lake.place.storage_options()).version() == version
    with s3.failing("503", "503", name=f"_delta_log/{len(steps):020d}.json"):
        sink.merge(folded(Event("I", (21, "a", "b", "c"))), 14, 13)
    assert opened(lake).count_rows() == len(ROWS) + 2


def test_columns_come_with_values_and_files_go(lake: LakeConfig) -> None:
    sink = opened(lake)
    sink.commit_files(sink.write_files(as_table(ROWS).to_batches(), SCHEMA), 10, SCHEMA, None)
    sink.merge(folded(Event("D", old=(2, None, None, None))), 11, 10)
    opened(lake).evolve(ADDED, {"n": pa.scalar(5, pa.int32())})
    assert {row[-1] for row in read(sink, lake)} == {5} and len(read(sink, lake)) == 9
    brief = DeltaSink(lake.place.table("shop", "item"), "p", Retention(0, 0, 0), deletion_vectors=True)
    brief.maintain()
    brief.maintain()  # knows by then what stood in the log
    left = {file.path for file in Folder(lake.place.table("shop", "item")).files_below()}
    live = set(DeltaTable(sink.uri, storage_options=lake.place.storage_options()).file_uris())
    assert {path for path in left if path.endswith((".parquet", ".bin")) and "/" not in path} == {
        uri.rpartition("/")[2] for uri in live
    }
    assert len(read(opened(lake), lake)) == 9


def test_of_two_that_apply_the_same_one_does(lake: LakeConfig) -> None:
    first = opened(lake)
    first.commit_files(first.write_files(as_table(ROWS).to_batches(), SCHEMA), 10, SCHEMA, None)
    together = Barrier(3)

    def apply(number: int) -> str:
        sink = opened(lake)
        together.wait()
        try:
            sink.merge(folded(Event("I", (20 + number, "a", "b", "c"))), 11, 10)
        except SinkConflictError:
            return "refused"
        return "done"

    with ThreadPoolExecutor(3) as pool:
        outcomes = sorted(pool.map(apply, range(3)))
    assert outcomes[0] == "done"
    assert opened(lake).count_rows() == len(ROWS) + 1, outcomes


def test_a_batch_costs_the_same_however_many_versions_there_are(s3: S3Server, lake: LakeConfig) -> None:
    sink = opened(lake)
    sink.commit_files(sink.write_files(as_table(ROWS).to_batches(), SCHEMA), 10, SCHEMA, None)
    counts = []
    for lsn in range(11, 18):
        s3.requests.clear()
        opened(lake).merge(folded(Event("U", (1, "a", str(lsn), "c"))), lsn, lsn - 1)
        counts.append(len(s3.requests))
    assert len(set(counts[3:])) == 1 and counts[-1] <= 18, counts


def test_key_indexes_are_a_cache_of_this_machine(lake: LakeConfig, tmp_path: Path, s3: S3Server) -> None:
    sink = opened(lake)
    sink.commit_files(sink.write_files(as_table(ROWS).to_batches(), SCHEMA), 10, SCHEMA, None)
    sink.merge(folded(Event("D", old=(2, None, None, None))), 11, 10)
    kept = list((tmp_path / "local").rglob("*.keys"))
    assert len(kept) == 1 and not any("_wal2lake" in path for _, path in s3.requests)
    s3.requests.clear()
    sink.merge(folded(Event("D", old=(3, None, None, None))), 12, 11)
    assert not [path for method, path in s3.requests if method == "GET" and path.endswith(".parquet")]
    shutil.rmtree(tmp_path / "local")
    (tmp_path / "local").write_text("no folder can be made here")
    sink.merge(folded(Event("D", old=(4, None, None, None))), 13, 12)
    assert [row[0] for row in read(sink, lake)] == [row[0] for row in sorted(ROWS, key=repr) if row[0] not in (2, 3, 4)]


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("503", SinkUnavailableError, "does not answer as it should"),
        ("denied", LakeRefusesError, "refuses s3://"),
        ("unknown_key", AuthError, "knows no credentials, or not these"),
    ],
)
def test_what_a_store_refuses_is_no_one_tables_failure(
    s3: S3Server, lake: LakeConfig, once: None, fault: Fault, kind: type[Exception], text: str
) -> None:
    sink = opened(lake)
    files = sink.write_files(as_table(ROWS).to_batches(), SCHEMA)
    sink.commit_files(files, 10, SCHEMA, None)
    asks: list[Callable[[], object]] = [
        lambda: opened(lake).state(),
        lambda: opened(lake).write_files(as_table(ROWS).to_batches(), SCHEMA),
        lambda: opened(lake).merge(folded(Event("D", old=(3, None, None, None))), 11, 10),
        lambda: list(opened(lake).read_files(files, SCHEMA)),
        lambda: opened(lake).maintain(),
    ]
    s3.fault = lambda *_: fault
    try:
        for ask in asks:
            with pytest.raises(kind, match=text) as caught:
                ask()
            assert not isinstance(caught.value, TABLE_ERRORS)
            assert not any(hidden in str(caught.value) for hidden in (SECRET, "Signature=", "AWSAccessKeyId"))
    finally:
        s3.fault = lambda *_: None
    assert opened(lake).count_rows() == len(ROWS)
