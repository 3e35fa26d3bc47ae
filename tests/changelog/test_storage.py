"""What each storage of the log promises, in a folder and where there are conditional puts alone; what a file costs."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from tests.changelog.conftest import IDENTITY, flushed_paths
from tests.changelog.memory import MemoryStorage
from wal2lake.capture.frames import without_headers
from wal2lake.changelog.consumers import forget_consumer
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.local import LocalStorage, storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import CaptureStatus, PipelineStatus, TableStatus, seconds_since_heard
from wal2lake.changelog.storage import Storage
from wal2lake.changelog.tables import known_tables
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import ConfigError, LogCorruptError, LogFullError, SlotInUseError
from wal2lake.files import LockHeldError
from wal2lake.lsn import LSN
from wal2lake.tables.state import TableState
from wal2lake.tables.table_folder import TableFolder
from wal2lake.testing.stream import ScriptedStream, insert, relation


@pytest.fixture(params=["local", "memory", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "objects":
        return storage_at(request.getfixturevalue("s3").url(tmp_path.name))
    storage: Storage = LocalStorage(tmp_path / "log") if request.param == "local" else MemoryStorage()
    storage.prepare("a", "b")
    return storage


def test_what_is_put_is_there(storage: Storage) -> None:
    assert (storage.names("a"), storage.names("nowhere"), storage.exists("a/file")) == ([], [], False)
    storage.put("a/file", b"one")
    assert (storage.get("a/file"), storage.map("a/file").to_pybytes(), storage.exists("a/file")) == (b"one",) * 2 + (
        True,
    )
    storage.note("a/file", b"two")
    assert storage.read("a/file").data == b"two"
    assert abs(time.time() - storage.modified("a/file")) < 60
    storage.remove("a/file")
    storage.remove("a/file")
    for ask in (storage.get, storage.read, storage.map, storage.modified):
        with pytest.raises(FileNotFoundError):
            ask("a/file")


def test_a_listing_has_what_lies_in_the_folder_itself(storage: Storage) -> None:
    storage.prepare("a/deep", "a/other")
    for name in ("a/2", "a/1", "a/.hidden", "a/deep/3", "a/other/4", "b/5", "6"):
        storage.put(name, b"x")
    assert (storage.names("a"), storage.folders("a")) == (["1", "2"], ["deep", "other"])


def test_the_first_to_create_is_the_one_that_counts(storage: Storage) -> None:
    assert storage.create("a/file", b"one", pa.py_buffer(b""), pa.py_buffer(b"three"))
    assert not storage.create("a/file", b"other")
    assert storage.get("a/file") == b"onethree"


def test_a_swap_is_of_what_was_read(storage: Storage) -> None:
    assert storage.swap("a/file", b"one", "of another") is None
    first = storage.swap("a/file", b"one", None)
    assert first == storage.read("a/file").version
    assert storage.swap("a/file", b"two", None) is None
    second = storage.swap("a/file", b"two", first)
    assert storage.swap("a/file", b"three", first) is None
    assert storage.read("a/file") == (b"two", second)


def test_of_many_that_count_up_at_once_none_is_lost(storage: Storage) -> None:
    storage.put("a/count", b"0")

    def count_up(_: int) -> None:
        while True:
            data, version = storage.read("a/count")
            if storage.swap("a/count", b"%d" % (int(data) + 1), version) is not None:
                return

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(count_up, range(40)))
    assert storage.get("a/count") == b"40"


def test_a_lock_has_one_holder(storage: Storage) -> None:
    with storage.lock("a/.lock"):
        assert storage.is_locked("a/.lock")
        with pytest.raises(LockHeldError), storage.lock("a/.lock"):
            pass
    assert not storage.is_locked("a/.lock")
    with storage.lock("a/.lock"):
        assert storage.names("a") == []


# -- what stands on it


def test_a_log_lives_where_there_are_conditional_puts_alone(storage: Storage) -> None:
    stream = ScriptedStream()
    with LogWriter(storage, IDENTITY) as writer:
        for number in range(3):
            writer.append(without_headers(stream.transaction(relation(), insert(number, "a"))))
        writer.set_position(stream.lsn + 64)
        writer.set_position(stream.lsn + 128)
        with pytest.raises(SlotInUseError, match="Another capture process"):
            LogWriter(storage, IDENTITY)
    log = ChangeLog.open(storage)
    assert (len(log.segments), log.durable_lsn(), list(verify_log(storage))) == (3, stream.lsn + 128, [])
    assert log.transactions(0, stream.lsn).num_rows == 3
    TableFolder(storage, "old", "public", "t").write(TableState("catch_up", log.start_lsn))
    assert known_tables(storage, "old") == [("public", "t")]
    for reader, lsn in (("shop", stream.lsn), ("shop", LSN(8)), ("old", stream.lsn)):
        log.release(reader, lsn)
    assert log.released()["shop"] == stream.lsn
    assert log.trim(0) == 0
    assert forget_consumer(log, "old", "shop") == ["old", "old@public.t"]
    assert log.trim(0) == 2
    with LogWriter(storage, IDENTITY) as writer:
        writer.append(without_headers(stream.transaction(insert(4, "a"))))
        assert writer.durable_lsn > stream.lsn


@pytest.fixture
def two_writers(storage: Storage) -> Iterator[tuple[LogWriter, LogWriter]]:
    """As where a lease ran out under a process that slept."""
    first = LogWriter(storage, IDENTITY)
    first.close()
    with LogWriter(storage, IDENTITY) as second:
        yield first, second


def test_of_two_writers_one_ends_and_nothing_is_lost(two_writers: tuple[LogWriter, LogWriter]) -> None:
    first, second = two_writers
    stream = ScriptedStream()
    one, other = (without_headers(stream.transaction(relation(), insert(n, "a"))) for n in range(2))
    second.append(one)
    with pytest.raises(SlotInUseError, match="writes the change log"):
        first.append(other)
    assert (first.durable_lsn, second.durable_lsn < stream.lsn) == (IDENTITY.start_lsn, True)
    second.append(other)
    assert list(verify_log(second.log.storage)) == []
    assert ChangeLog.open(second.log.storage).last_end_lsn == stream.lsn


def test_of_two_writers_one_ends_before_it_moves_the_position(two_writers: tuple[LogWriter, LogWriter]) -> None:
    first, second = two_writers
    second.set_position(0x9000)
    with pytest.raises(SlotInUseError, match="writes the change log"):
        first.set_position(0x8000)
    assert ChangeLog.open(second.log.storage).durable_lsn() == 0x9000


def test_a_segment_whose_put_was_not_answered_is_ones_own(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its folder could not be flushed, or the connection to an object store broke."""
    create, stream = storage.create, ScriptedStream()
    sent = without_headers(stream.transaction(relation(), insert(1, "a")))

    def unanswered(name: str, *parts: bytes | pa.Buffer) -> bool:
        create(name, *parts)
        raise OSError(errno.EIO, "nobody answers")

    with LogWriter(storage, IDENTITY) as writer:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="nobody"):
            patch.setattr(storage, "create", unanswered)
            writer.append(sent)
        assert writer.durable_lsn == IDENTITY.start_lsn
        writer.append(sent)
        assert writer.durable_lsn == stream.lsn
    assert len(ChangeLog.open(storage).segments) == 1


def test_two_that_make_the_log_at_once_agree_on_one(storage: Storage) -> None:
    assert ChangeLog.create(storage, IDENTITY).identity == ChangeLog.create(storage, IDENTITY).identity


# -- status


def test_a_status_comes_back_as_it_was_written(storage: Storage) -> None:
    storage.prepare("status")
    assert (CaptureStatus.read(storage), seconds_since_heard(storage)) == (None, None)
    said = CaptureStatus(pid=7, ts=1.5, state="streaming", durable_lsn=LSN(0x16B3748), messages=3)
    told = PipelineStatus(state="waiting", applied_lsn=LSN(9), tables={"a.b": TableStatus(rows=1, applied_lsn=LSN(8))})
    said.write(storage)
    told.write(storage)
    assert (CaptureStatus.read(storage), PipelineStatus.read(storage)) == (said, told)
    assert b'"durable_lsn": "0/16B3748"' in storage.get("status/capture.json")
    heard = seconds_since_heard(storage)
    assert heard is not None and heard < 60


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'{"state": 1}'])
def test_a_status_that_is_torn_counts_as_absent(storage: Storage, left: bytes) -> None:
    storage.prepare("status")
    storage.put("status/pipeline.json", left)
    assert PipelineStatus.read(storage) is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_does_not_keep_anybody_from_saying_so(small_disk: Path) -> None:
    storage = LocalStorage(small_disk / "log")
    storage.prepare("status")
    CaptureStatus(state="streaming", reason="x" * 100).write(storage)
    with pytest.raises(OSError, match="No space"):
        (small_disk / "other").write_bytes(bytes(1 << 20))
    with pytest.raises(LogFullError, match="Make room"):
        storage.put("status/another.json", b"x" * 5000)
    for reason in ("The disk is full.", "The disk is full, and was full before."):
        CaptureStatus(state="failed", reason=reason).write(storage)
        said = CaptureStatus.read(storage)
        assert said is not None and (said.state, said.reason) == ("failed", reason)
    with pytest.raises(LogFullError):
        CaptureStatus(reason="x" * 10_000).write(storage)
    said = CaptureStatus.read(storage)
    assert said is not None and said.reason == reason, "what does not fit leaves what was there"
    with pytest.raises(LogFullError):
        PipelineStatus().write(storage)


# -- a folder


@pytest.mark.parametrize(
    ("write", "flushes"),
    [
        (lambda storage: storage.put("a/file", b"one"), 2),
        (lambda storage: storage.create("a/file", b"one"), 2),
        (lambda storage: storage.swap("a/file", b"one", None), 2),
        (lambda storage: storage.note("a/file", b"one"), 0),
    ],
    ids=["put", "create", "swap", "note"],
)
def test_a_durable_file_is_flushed_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Storage], object], flushes: int
) -> None:
    storage, flushed = LocalStorage(tmp_path), flushed_paths(monkeypatch)
    storage.prepare("a")
    assert {tmp_path, tmp_path / "a"} <= set(flushed)
    flushed.clear()
    write(storage)
    assert (tmp_path / "a/file").read_bytes() == b"one"
    assert len(flushed) == flushes
    if flushes:
        aside, folder = flushed
        assert (aside.parent, aside.name.startswith(".file."), folder) == (tmp_path / "a", True, tmp_path / "a")


def test_what_a_writer_left_half_written_is_never_listed_and_goes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.prepare("a")
    storage.put("a/b", b"x")
    (tmp_path / "a/.c.1-2.tmp").write_bytes(b"half")
    assert storage.names("a") == ["b"]
    storage.recover("a")
    assert os.listdir(tmp_path / "a") == ["b"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, OSError),
        (errno.ENOSPC, LogFullError),
        (errno.EDQUOT, LogFullError),
        (errno.EROFS, ConfigError),
        (errno.EISDIR, ConfigError),
    ],
)
@pytest.mark.parametrize("how", ["put", "note", "swap"])
def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], how: str
) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("file", b"old")
    version = storage.read("file").version

    def replace(source: Path, target: Path) -> None:
        raise OSError(number, "the disk is broken")

    monkeypatch.setattr(os, "replace", replace)
    in_place = how == "note" and kind is LogFullError  # the old one's room is all there is
    with nullcontext() if in_place else pytest.raises(kind):
        getattr(storage, how)("file", b"new", *([version] if how == "swap" else []))
    assert sorted(os.listdir(tmp_path)) == [".swap", "file"][how != "swap" :]
    assert storage.get("file") == (b"new" if in_place else b"old")


def test_what_the_lock_is_held_for_speaks_for_itself(tmp_path: Path) -> None:
    """A full disk elsewhere is not blamed on the log."""
    with pytest.raises(OSError, match="elsewhere"), LocalStorage(tmp_path).lock(".lock"):
        raise OSError(errno.ENOSPC, "elsewhere")


def test_a_table_without_a_sound_document_is_not_taken_for_a_new_one(storage: Storage) -> None:
    storage.prepare("snapshots/p/public.t")
    storage.put("snapshots/p/public.t/state.json", b"{}")
    with pytest.raises(LogCorruptError):
        TableFolder(storage, "p", "public", "t").write(TableState())
