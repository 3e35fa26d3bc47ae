"""The log where answers are lost, a writer sleeps past its lease, and nobody can say whether a put counted."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import pytest

from tests.changelog.conftest import IDENTITY
from tests.s3 import SECRET, S3Server
from wal2lake.capture.frames import without_headers
from wal2lake.changelog import lease
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.objects import ObjectStorage
from wal2lake.changelog.places import WRITER_LOCK
from wal2lake.changelog.writer import LogWriter
from wal2lake.errors import AuthError, ConfigError, ConnectError, RightsError, SlotInUseError, Wal2LakeError
from wal2lake.files import LockHeldError
from wal2lake.testing.stream import ScriptedStream, insert, relation
from wal2lake.urls import ObjectUrl


class Place(NamedTuple):
    """A prefix of its own, and who is asked."""

    server: S3Server
    url: str

    def open(self) -> ObjectStorage:
        """As another process would."""
        return ObjectStorage(self.url)


@pytest.fixture
def place(s3: S3Server, tmp_path: Path) -> Place:
    return Place(s3, s3.url(f"{tmp_path.name}/log"))


def sent(stream: ScriptedStream, key: int) -> object:
    return without_headers(stream.transaction(relation(), insert(key, "a")))


def segment(storage: ObjectStorage, seq: int) -> str:
    return f"segments/{seq:016d}.arrow"


# -- answers


@pytest.mark.parametrize("faults", [["503"], ["lost"], ["lost", "503"], ["503", "lost"]], ids=str)
def test_a_put_counts_once_whatever_is_answered(place: Place, faults: list) -> None:
    storage = place.open()
    with place.server.failing(*faults):
        assert storage.create("a", b"one")
    assert not storage.create("a", b"one"), "somebody else's, who would write the same"
    with place.server.failing(*faults):
        version = storage.swap("a", b"two", storage.read("a").version)
    assert version == storage.read("a").version
    assert storage.swap("a", b"three", "of another") is None


def test_a_store_that_answers_no_more_is_worth_waiting_for(place: Place) -> None:
    storage = place.open()
    with place.server.failing(*["503"] * 7), pytest.raises(ConnectError, match="does not answer") as caught:
        storage.create("a", b"one")
    assert caught.value.transient
    with place.server.failing(*["lost"] * 7):
        assert storage.create("b", b"one"), "it is asked once more what is there"


@pytest.mark.parametrize("ask", ["get", "put", "list", "exists"])
@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [("denied", RightsError, "refuses"), ("unknown_key", (AuthError, RightsError), "credentials")],
)
def test_what_is_refused_is_one_sentence_without_a_key(
    place: Place, ask: str, fault: str, kind: type[Wal2LakeError], text: str
) -> None:
    storage = place.open()
    asks: dict[str, Callable[[], object]] = {
        "get": lambda: storage.get("a"),
        "put": lambda: storage.put("a", b""),
        "list": lambda: storage.names("a"),
        "exists": lambda: storage.exists("a"),
    }
    place.server.fault = lambda *_: fault  # type: ignore[assignment, return-value]
    try:
        with pytest.raises(kind, match=text) as caught:
            asks[ask]()
    finally:
        place.server.fault = lambda *_: None
    shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert not any(hidden in shown for hidden in (SECRET, "Signature=", "AWSAccessKeyId"))


def test_a_bucket_that_is_not_there_is_no_empty_log(s3: S3Server) -> None:
    storage = ObjectStorage(s3.url("log", bucket="nowhere"))
    for ask in (lambda: storage.exists("log.json"), lambda: storage.put("a", b""), lambda: storage.names("")):
        with pytest.raises(ConfigError, match="no bucket for s3://nowhere/log"):
            ask()


def test_nobody_there(tmp_path: Path) -> None:
    storage = ObjectStorage("s3://changes/log?endpoint=http://127.0.0.1:9&access_key_id=x&secret_access_key=$PATH")
    with pytest.raises(ConnectError, match="or not at all"):
        storage.get("a")


def test_a_store_without_conditions_is_refused(place: Place) -> None:
    storage = place.open()
    storage.probe()
    assert storage.clear() is False
    place.server.fault = lambda *_: "unconditional"
    try:
        with pytest.raises(ConfigError, match="does not keep to the conditions"):
            LogWriter(place.open(), IDENTITY)
    finally:
        place.server.fault = lambda *_: None


# -- what it costs


def test_whoever_plans_reads_ends_alone(place: Place) -> None:
    stream = ScriptedStream()
    with LogWriter(place.open(), IDENTITY, compression="none") as writer:
        for number in range(3):
            rows = [insert(number, os.urandom(30_000).hex()) for _ in range(10)]
            writer.append(without_headers(stream.transaction(relation(), *rows)))
    storage, sizes = place.open(), list[int]()
    read = storage.map
    storage.map = lambda name: sizes.append(len(found := read(name))) or found  # type: ignore[method-assign]
    log = ChangeLog.open(storage)
    assert (log.transactions(0, stream.lsn).num_rows, sizes) == (3, [])
    place.server.requests.clear()
    log.refresh()
    assert [method for method, _ in place.server.requests] == ["GET", "HEAD", "HEAD"]
    assert log.read(log.plan(0, stream.lsn)[0]).num_rows == 13
    assert len(sizes) == 1 and sizes[0] > 500_000
    assert list(verify_log(place.open())) == []


def test_an_append_is_one_put(place: Place) -> None:
    stream = ScriptedStream()
    with LogWriter(place.open(), IDENTITY) as writer:
        writer.append(sent(stream, 1))  # and what is in force, once
        place.server.requests.clear()
        writer.append(without_headers(stream.transaction(insert(2, "a"))))
    asked = [(method, path) for method, path in place.server.requests if "/segments/" in path]
    assert [(method, path.endswith(segment(place.open(), 1))) for method, path in asked] == [("PUT", True)]


def test_what_is_cleared_is_the_log_alone(place: Place) -> None:
    with LogWriter(place.open(), IDENTITY):
        pass
    storage = place.open()
    storage.put("another/file", b"x")
    assert (storage.clear(), storage.clear()) == (True, False)
    assert (storage.names(""), storage.folders("")) == ([], ["another"])


# -- the lease


def test_a_lease_passes_on_when_it_was_not_renewed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(lease, "clock", lambda: now)
    monkeypatch.setattr(lease, "RENEW_S", 3600.0)
    first, second = place.open(), place.open()
    with first.lock("a") as slept:
        for _ in range(2):
            with pytest.raises(LockHeldError, match="pid"), second.lock("a"):
                pass
            assert second.is_locked("a")
        now += lease.LEASE_S
        assert not second.is_locked("a")
        with second.lock("a") as successor:
            assert (slept.epoch, successor.epoch) == (1, 2)
            successor.check()
            now += 0.1
            with pytest.raises(LockHeldError, match="pid"):
                slept.check()
    assert not first.is_locked("a")
    with first.lock("a") as third:
        assert third.epoch == 3


def test_a_lease_that_is_renewed_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(lease, "clock", lambda: now)
    monkeypatch.setattr(lease, "RENEW_S", 3600.0)
    with place.open().lock("a") as held:
        for fault in ([], ["lost"], ["lost"] * 7):
            now += lease.LEASE_S + 1
            with place.server.failing(*fault, name="a"):
                held.check()
            with pytest.raises(LockHeldError), place.open().lock("a"):
                pass


def test_of_many_that_take_a_lease_one_has_it(place: Place) -> None:
    tried = Barrier(4)

    def take(_: int) -> int:
        try:
            with place.open().lock("a") as hold:
                tried.wait()
                return hold.epoch
        except LockHeldError:
            tried.wait()
            return 0

    with ThreadPoolExecutor(4) as executor:
        assert sorted(executor.map(take, range(4))) == [0, 0, 0, 1]


_HOLDER = """
import sys
from wal2lake.changelog.local import storage_at
with storage_at(sys.argv[1]).lock(".lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_who_was_killed_holds_nothing(place: Place) -> None:
    """On this machine that is known at once; elsewhere when the lease has run out."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, place.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SlotInUseError, match=rf"pid {holder.pid} on"):
            LogWriter(place.open(), IDENTITY)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not place.open().is_locked(WRITER_LOCK)
    with LogWriter(place.open(), IDENTITY):
        pass


def test_a_lease_whose_put_nobody_answered_is_nobodys(place: Place) -> None:
    storage = place.open()
    place.server.fault = lambda method, path: "lost" if path.endswith("/.lock") and method == "PUT" else None
    try:
        with storage.lock(WRITER_LOCK):  # it is asked what is there
            pass
        place.server.fault = lambda method, path: "503" if "position" in path else None
        with pytest.raises(ConnectError):
            LogWriter(storage, IDENTITY)
    finally:
        place.server.fault = lambda *_: None
    with LogWriter(storage, IDENTITY), pytest.raises(SlotInUseError):
        LogWriter(place.open(), IDENTITY)


# -- writers that were left behind


class Writers(NamedTuple):
    """One whose lease ran out while it slept, and the one that took it over; neither is renewed."""

    slept: LogWriter
    other: LogWriter


@pytest.fixture
def writers(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[LogWriter], Writers]:
    monkeypatch.setattr(lease, "RENEW_S", 3600.0)
    now = lease.clock()
    monkeypatch.setattr(lease, "clock", lambda: now)

    def taken_over(slept: LogWriter) -> Writers:
        nonlocal now
        with pytest.raises(SlotInUseError):
            LogWriter(place.open(), IDENTITY)
        now += lease.LEASE_S
        other = LogWriter(place.open(), IDENTITY)
        monkeypatch.setattr(lease.Lease, "check", lambda _: None)  # as if it fell asleep behind that
        return Writers(slept, other)

    return taken_over


def test_a_writer_that_wakes_is_refused_before_it_writes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = lease.clock()
    monkeypatch.setattr(lease, "RENEW_S", 3600.0)
    monkeypatch.setattr(lease, "clock", lambda: now)
    slept, stream = LogWriter(place.open(), IDENTITY), ScriptedStream()
    with pytest.raises(SlotInUseError):
        LogWriter(place.open(), IDENTITY)
    now += lease.LEASE_S
    with LogWriter(place.open(), IDENTITY):
        now += 1
        for write in (lambda: slept.append(sent(stream, 1)), lambda: slept.set_position(0x9000), slept.catch_up):
            with pytest.raises(SlotInUseError, match="Another capture process"):
                write()
    assert place.open().names("segments") == []
    slept.close()


def test_what_counted_before_the_other_had_the_slot_is_the_logs(
    place: Place, writers: Callable[[LogWriter], Writers]
) -> None:
    stream = ScriptedStream()
    slept, other = writers(LogWriter(place.open(), IDENTITY))
    slept.append(sent(stream, 1))  # and may have acknowledged it
    other.catch_up()
    assert other.durable_lsn == stream.lsn
    other.append(sent(stream, 2))
    with pytest.raises(SlotInUseError, match="it wrote a segment"):
        slept.append(sent(ScriptedStream(), 3))
    log = ChangeLog.open(place.open())
    assert ([s.epoch for s in log.segments], log.last_end_lsn) == ([1, 2], stream.lsn)
    assert list(verify_log(place.open())) == []
    slept.close(), other.close()


def test_what_comes_behind_the_others_position_is_none_of_the_logs(
    place: Place, writers: Callable[[LogWriter], Writers]
) -> None:
    """The other one streams from the slot by then, so nothing of it was acknowledged."""
    stream = ScriptedStream()
    slept, other = writers(LogWriter(place.open(), IDENTITY))
    other.set_position(0x1800)
    slept.append(sent(ScriptedStream(), 1))
    reader = ChangeLog.open(place.open())
    assert (reader.segments, reader.durable_lsn(), list(verify_log(place.open()))) == ([], 0x1800, [])
    stream.lsn = type(stream.lsn)(0x2000)
    other.append(sent(stream, 2))
    reader.refresh()
    assert ([s.epoch for s in reader.segments], reader.last_end_lsn) == ([2], stream.lsn)
    assert list(verify_log(place.open())) == []
    slept.close(), other.close()


def test_what_comes_before_the_log_begins_is_none_of_it(place: Place, writers: Callable[[LogWriter], Writers]) -> None:
    """A put that slept for as long as retention keeps anything."""
    stream = ScriptedStream()
    slept, other = writers(LogWriter(place.open(), IDENTITY))
    for number in range(3):
        other.append(sent(stream, number))
    log = ChangeLog.open(place.open())
    log.release("shop", stream.lsn)
    assert log.trim(0) == 2
    slept.append(sent(ScriptedStream(), 9))
    assert place.open().exists(segment(place.open(), 0))
    assert [s.seq for s in ChangeLog.open(place.open()).segments] == [2]
    assert list(verify_log(place.open())) == []
    slept.close(), other.close()


def test_a_segment_that_nobody_answered_for_is_gone_on_from(place: Place) -> None:
    stream = ScriptedStream()
    with LogWriter(place.open(), IDENTITY) as writer:
        writer.append(sent(stream, 1))
        answers = ("503",) * 7
        again = without_headers(stream.transaction(insert(2, "a")))
        server = place.server
        segments = f"/{writer.log.storage.where.rpartition('/')[2]}/segments/"
        server.fault = lambda method, path: "lost" if segments in path and method in ("PUT", "GET") else None
        try:
            with pytest.raises(ConnectError):
                writer.append(again)
        finally:
            server.fault = lambda *_: None
        assert writer.durable_lsn < stream.lsn
        writer.catch_up()
        writer.new_session()
        assert writer.durable_lsn == stream.lsn
        with server.failing(*answers, name="position"), pytest.raises(ConnectError):
            writer.set_position(stream.lsn + 8)
        writer.catch_up()
        writer.set_position(stream.lsn + 16)
        writer.append(without_headers(stream.transaction(relation(), insert(3, "a"))))
    assert len(ChangeLog.open(place.open()).segments) == 3
    assert list(verify_log(place.open())) == []


def test_an_own_put_that_arrives_late_is_gone_on_from(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, stream = place.open(), ScriptedStream()
    create, late = storage.create, list[tuple[str, bytes]]()

    def unanswered(name: str, *parts: bytes) -> bool:
        late.append((name, b"".join(parts)))
        raise ConnectError("nobody answers")

    with LogWriter(storage, IDENTITY) as writer:
        sent(stream, 0)
        with monkeypatch.context() as patch, pytest.raises(ConnectError):
            patch.setattr(storage, "create", unanswered)
            writer.append(without_headers(stream.transaction(insert(1, "a"))))
        writer.catch_up()
        assert create(*late[0])
        again = without_headers(ScriptedStream().transaction(relation(), insert(1, "b")))
        with pytest.raises(ConnectError, match="going on behind it") as caught:
            writer.append(again)
        assert caught.value.transient
        writer.catch_up()
        assert writer.durable_lsn == stream.lsn
    assert list(verify_log(place.open())) == []


# -- cut back, as `resync --forked` does after a promotion


@pytest.mark.parametrize("dies", [False, True])
def test_a_log_that_is_cut_back_ends_at_the_fork(place: Place, dies: bool) -> None:
    stream, ends, chance = ScriptedStream(), [], random.Random(5)
    with LogWriter(place.open(), IDENTITY) as writer:
        for number in range(5):
            writer.append(sent(stream, number))
            ends.append(stream.lsn)
        writer.set_position(stream.lsn + 100)
    if dies:
        failing = place.server.failing(*["503"] * 7, method="POST")
        with failing, pytest.raises(ConnectError), LogWriter(place.open(), IDENTITY) as writer:
            writer.cut(ends[2])
    prefix = place.url.partition("?")[0].split("/")[3]
    place.server.fault = lambda _, path: (
        chance.choice(("503", "lost")) if prefix in path and chance.random() < 0.2 else None
    )
    try:
        with LogWriter(place.open(), IDENTITY) as writer:
            writer.cut(ends[2])
    finally:
        place.server.fault = lambda *_: None
    log = ChangeLog.open(place.open())
    assert (log.transactions(0, 1 << 62).num_rows, log.last_end_lsn) == (3, ends[2])
    assert log.durable_lsn() <= ends[2] and list(verify_log(place.open())) == []
    with LogWriter(place.open(), IDENTITY) as writer:
        writer.append(sent(ScriptedStream(stream.lsn + 0x1000), 9))
    assert ChangeLog.open(place.open()).transactions(0, 1 << 62).num_rows == 4
    assert list(verify_log(place.open())) == []


# -- its URL


def test_a_url_travels_without_a_secret(place: Place) -> None:
    storage = place.open()
    assert SECRET not in place.url and SECRET.encode() not in pickle.dumps(storage)
    again = pickle.loads(pickle.dumps(storage))
    assert again.where == storage.where == place.url.partition("?")[0]
    assert storage_at(place.url) is storage_at(place.url)


@pytest.mark.parametrize("name", ["secret_access_key", "aws_session_token", "account_key", "sas_token", "proxy_url"])
def test_a_secret_is_not_taken(name: str) -> None:
    for make in (
        lambda: ObjectUrl.parse(f"s3://b/p?{name}={SECRET}"),
        lambda: ObjectUrl.parse("s3://b/p").with_options({name: SECRET}),
    ):
        with pytest.raises(ConfigError, match=f"log.options.{name} has a secret") as caught:
            make()
        assert SECRET not in str(caught.value)
    assert ObjectUrl.parse("s3://b/p").with_options({name: "$MINE"}).options == ((name, "$MINE"),)


@pytest.mark.parametrize(
    "url", ["ftp://b/p", "s3://", "s3:///p", "s3://key:word@b/p", "s3://b/p#x", "s3://b/../p", "s3://b/p?x"]
)
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ObjectUrl.parse(url)
    assert "word" not in str(caught.value)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match="WAL2LAKE_NOT_SET, which is not set"):
        ObjectStorage("s3://b/p?secret_access_key=$WAL2LAKE_NOT_SET")
    with pytest.raises(ConfigError, match="has a name that s3"):
        ObjectStorage("s3://b/p?nobody_knows=1")
