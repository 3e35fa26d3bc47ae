"""Which version stands for an LSN, what is waited for, and what happens when the pipeline was faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from wal2lake.capture.frames import without_headers
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.config import Config, LakeConfig
from wal2lake.errors import ConfigError
from wal2lake.lakes import Place
from wal2lake.lsn import LSN
from wal2lake.testing.stream import ScriptedStream, insert, relation
from wal2lake.verify import verify
from wal2lake.verify.position import LakePosition, TableLocation, await_tables, log_touches, running

OTHER = 16999


def _commit(uri: Path, lsn: int | None) -> None:
    stamp = CommitProperties() if lsn is None else CommitProperties({"wal2lake.lsn": str(LSN(lsn))})
    write_deltalake(str(uri), pa.table({"id": [1]}), mode="append", commit_properties=stamp)


def position_at(uri: Path, lsn: int) -> LakePosition | None:
    return TableLocation("public.t", 16384, Place(str(uri))).position(LSN(lsn))


@pytest.mark.parametrize(
    ("lsn", "expected"),
    [
        (5, LakePosition(-1, LSN(0), True)),
        (10, LakePosition(0, LSN(10), True)),
        (29, LakePosition(2, LSN(20), True)),  # version 2 is somebody else's, and belongs to what is verified
        (30, LakePosition(4, LSN(30), False)),
        (99, LakePosition(4, LSN(30), False)),
    ],
)
def test_the_version_for_an_lsn_is_the_last_before_a_commit_beyond_it(
    tmp_path: Path, lsn: int, expected: LakePosition
) -> None:
    for applied in (10, 20, None, 30, None):
        _commit(tmp_path / "t", applied)
    assert position_at(tmp_path / "t", lsn) == expected


def test_a_long_history_is_searched_to_its_end(tmp_path: Path) -> None:
    _commit(tmp_path / "t", 10)
    for _ in range(40):
        _commit(tmp_path / "t", None)
    assert position_at(tmp_path / "t", 99) == LakePosition(40, LSN(10), False)


@dataclass
class Pipeline:
    """A log written by hand and one lake table beside it: table t (16384) and another that shares the log."""

    folder: Path
    stream: ScriptedStream
    writer: LogWriter
    table: TableLocation

    def transaction(self, oid: int = 16384) -> LSN:
        self.writer.append(without_headers(self.stream.transaction(relation(oid), insert(1, "x", oid=oid))))
        return self.stream.lsn

    def durable(self, lsn: int) -> None:
        self.writer.set_position(LSN(lsn))

    def sign_of_life(self) -> None:
        (self.folder / "log" / "status").mkdir(exist_ok=True)
        (self.folder / "log" / "status" / "pipeline.json").write_text("{}")

    def wait(
        self, lsn: int, timeout_s: float = 0.0, say: Callable[[str], None] = lambda _: None
    ) -> tuple[bool, str | None]:
        return await_tables(ChangeLog.open(self.folder / "log"), [self.table], LSN(lsn), timeout_s, say)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    stream = ScriptedStream()
    with _writer(tmp_path / "log", stream) as writer:
        yield Pipeline(tmp_path, stream, writer, TableLocation("public.t", 16384, Place(str(tmp_path / "t"))))


@contextmanager
def _writer(path: Path, stream: ScriptedStream) -> Iterator[LogWriter]:
    writer = LogWriter(path, LogIdentity("7", 1, "shop", "slot", "pub", stream.lsn))
    try:
        yield writer
    finally:
        writer.close()


def test_the_log_tells_whether_a_table_changed_in_a_range(pipeline: Pipeline) -> None:
    start = pipeline.stream.lsn
    first, second = pipeline.transaction(), pipeline.transaction(OTHER)
    log = ChangeLog.open(pipeline.folder / "log")
    assert log_touches(log, 16384, start, second)
    assert not log_touches(log, 16384, first, second)
    assert log_touches(log, OTHER, first, second)
    assert not log_touches(log, OTHER, second, second)


def test_a_table_without_changes_up_to_the_lsn_is_there(pipeline: Pipeline) -> None:
    _commit(pipeline.folder / "t", pipeline.transaction())
    end = pipeline.transaction(OTHER)
    assert pipeline.wait(end) == (True, None)


def test_a_log_that_ends_too_early_is_named_when_nothing_runs(pipeline: Pipeline) -> None:
    end = pipeline.transaction()
    _commit(pipeline.folder / "t", end)
    fits, note = pipeline.wait(end + 1000)
    assert fits and note is not None and str(end) in note and "`wal2lake run`" in note
    pipeline.durable(end + 1000)
    assert pipeline.wait(end + 1000) == (True, None)


def test_a_table_that_is_behind_is_named_when_nothing_runs(pipeline: Pipeline) -> None:
    _commit(pipeline.folder / "t", pipeline.transaction())
    fits, note = pipeline.wait(pipeline.transaction())
    assert fits and note is not None and "public.t" in note


def test_a_batch_across_the_lsn_does_not_fit(pipeline: Pipeline) -> None:
    _commit(pipeline.folder / "t", pipeline.transaction())
    middle = pipeline.transaction()
    _commit(pipeline.folder / "t", pipeline.transaction())
    assert pipeline.wait(middle) == (False, None)


def test_a_running_pipeline_is_waited_for(pipeline: Pipeline) -> None:
    _commit(pipeline.folder / "t", pipeline.transaction())
    end = pipeline.transaction()
    pipeline.sign_of_life()
    assert running(ChangeLog.open(pipeline.folder / "log"))

    told: list[str] = []

    def catch_up(why: str) -> None:
        if not told:
            _commit(pipeline.folder / "t", end)
        told.append(why)

    assert pipeline.wait(end, timeout_s=30, say=catch_up) == (True, None)
    assert told == [f"Waiting for public.t to reach {LSN(end)}."]


def test_append_mode_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="append-mode"):
        verify(Config(lake=LakeConfig(path=str(tmp_path), mode="append")), None)  # type: ignore[arg-type]
