"""The log holds what PostgreSQL sent, whatever happens to capture, server or disk; and refuses what cannot be right."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from tests.capture.conftest import World
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.capture.startup import change_log_findings
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.cli.main import app
from wal2lake.config import LakeConfig
from wal2lake.errors import (
    LogFullError,
    LogMismatchError,
    PublicationError,
    SlotInUseError,
    SlotLostError,
    SlotMissingError,
)
from wal2lake.monitor.progress import read_progress
from wal2lake.monitor.status import read_status
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import SlotState, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def test_log_equals_an_independent_reading(world: World) -> None:
    world.make_slots()
    with world.capturing():
        world.insert(1, 5000)
        world.sql(f"UPDATE {world.name} SET v = NULL WHERE id < 10; DELETE FROM {world.name} WHERE id > 4000")
        world.sql(f"BEGIN; INSERT INTO {world.name} VALUES (-1, 'never'); ROLLBACK")
        world.sql(f"TRUNCATE {world.name}")
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert world.captured() == world.expected()
    assert world.confirmed() == world.log.durable_lsn()
    status = json.loads((world.path / "status/capture.json").read_text())
    assert (status["state"], status["pid"]) == ("stopped", os.getpid())
    assert status["durable_lsn"] == status["confirmed_lsn"] == str(world.log.durable_lsn())


def test_it_says_that_it_waits(world: World) -> None:
    """Also before there is a log; `run` shows this, and the last warning with it."""
    away = replace(world.config, source=replace(world.config.source, dsn="host=127.0.0.1 port=1"))
    with world.capturing(Capture(away)):
        eventually((world.path / "status/capture.json").exists)
        waiting = read_progress(str(world.path))
        assert waiting.capture_state == "waiting" and "127.0.0.1" in str(waiting.capture_reason)
    with world.capturing():
        eventually(lambda: read_progress(str(world.path)).capture_state == "streaming")
        assert read_progress(str(world.path)).capture_reason is None


def test_it_says_how_it_ended_and_where_it_could_not_its_lock_does(world: World) -> None:
    capture = world.spawn()
    eventually(lambda: read_progress(str(world.path)).capture_state == "streaming")
    capture.send_signal(signal.SIGKILL)
    capture.wait()
    assert read_progress(str(world.path)).capture_state == "died"
    world.sql(f"DROP PUBLICATION {world.name}")
    with world.capturing():
        eventually(lambda: world.errors)
    failed = read_progress(str(world.path))
    assert (failed.capture_state, failed.capture_reason) == ("failed", str(world.errors.pop()))
    away = replace(world.config, source=replace(world.config.source, dsn="host=127.0.0.1 port=1"))
    with world.capturing(Capture(away)):
        eventually(lambda: read_progress(str(world.path)).capture_state == "waiting")
    assert read_progress(str(world.path)).capture_state == "stopped"


class Load(threading.Thread):
    """Transactions of all sizes until it is stopped, a fifth of them rolled back."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.stopped = world, threading.Event()

    def run(self) -> None:
        rng, at = random.Random(7), 0
        with psycopg.connect(self.world.server.dsn) as connection:
            while not self.stopped.is_set():
                size = rng.choice([1, 1, 1, 20, 500])
                connection.execute(
                    f"INSERT INTO {self.world.name} SELECT g, md5(g::text)"
                    f" FROM generate_series({at}, {at + size - 1}) g".encode()
                )
                connection.execute(f"UPDATE {self.world.name} SET v = 'u' WHERE id = {at}".encode())
                end = connection.rollback if rng.random() < 0.2 else connection.commit
                end()
                at += size
                time.sleep(0.01)  # a load, not a flood


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_or_doubled(world: World) -> None:
    world.make_slots()
    load = Load(world)
    load.start()
    try:
        world.kill_captures(12)
    finally:
        load.stopped.set()
        load.join()
    end = world.wal_end()
    with world.capturing():
        world.await_durable(end)
        assert world.confirmed() <= world.log.durable_lsn()
    assert world.captured() == world.expected()
    assert len(world.log.segments) > 8


def test_signals_end_it_in_good_order(world: World) -> None:
    world.make_slots()
    for number in (signal.SIGTERM, signal.SIGINT):
        capture = world.spawn()
        world.insert(number * 1000, number * 1000 + 500)
        world.await_durable(world.wal_end())
        capture.send_signal(number)
        assert capture.wait(20) == 0
        assert world.confirmed() == world.log.durable_lsn()
    assert world.captured() == world.expected()


def test_an_idle_publication_lets_the_slot_advance(world: World) -> None:
    with world.capturing():
        world.await_durable(world.wal_end())
        world.sql(f"CREATE TABLE {world.name}_other AS SELECT g FROM generate_series(1, 1000) g")
        end = world.wal_end()
        eventually(lambda: world.confirmed() >= end, world.errors)
        assert world.log.durable_lsn() >= world.confirmed()
        assert world.log.segments == []
        world.sql(f"DROP TABLE {world.name}_other")


def test_a_locked_table_does_not_keep_it_from_starting(world: World) -> None:
    """As by an ALTER that waits for a query to end, or a VACUUM FULL; the changes of other tables go on meanwhile."""
    world.sql(f"CREATE TABLE {world.name}_b (id int PRIMARY KEY)")
    world.sql(f"ALTER PUBLICATION {world.name} ADD TABLE {world.name}_b")
    world.make_slots()
    for first in (1, 2):  # without a log, and with one
        with psycopg.connect(world.server.dsn) as locking:
            locking.execute(f"LOCK TABLE {world.name} IN ACCESS EXCLUSIVE MODE".encode())
            with world.capturing():
                world.sql(f"INSERT INTO {world.name}_b VALUES ({first})")
                world.await_durable(world.wal_end())
    assert world.errors == []
    assert world.captured() == world.expected()
    world.sql(f"DROP TABLE {world.name}_b")


def test_the_idle_position_is_where_it_goes_on(world: World) -> None:
    world.make_slots()
    with world.capturing():
        world.insert(1, 3)
        world.sql("CHECKPOINT")
        world.await_durable(world.wal_end())
    with world.capturing():
        world.insert(4, 6)
        world.await_durable(world.wal_end())
    assert world.captured() == world.expected()


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """One that may be stopped and crashed."""
    with EmbeddedPostgres() as running:
        yield running


@pytest.fixture
def own_world(own_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[World]:
    world = World(own_server, tmp_path / "log")
    world.setup()
    yield world
    world.teardown()


@pytest.fixture
def impatient(own_world: World) -> Iterator[World]:
    """A busy machine may well be silent for three seconds: for the tests only that wait for the end of them."""
    own_world.sql("ALTER ROLE postgres SET wal_sender_timeout = '3s'")
    yield own_world
    own_world.sql("ALTER ROLE postgres RESET wal_sender_timeout")


def test_it_comes_back_with_the_password_of_the_day(world: World, tmp_path: Path) -> None:
    role, password = f"{world.name}_role", tmp_path / "password"

    def rotate(new: str) -> None:
        password.write_text(new)
        world.sql(f"SET synchronous_commit = on; ALTER ROLE {role} PASSWORD '{new}'")

    world.sql(f"CREATE ROLE {role} LOGIN REPLICATION")
    rotate("first")
    dsn = f"host=127.0.0.1 port={world.server.port} user={role} dbname=postgres"
    source = replace(world.config.source, dsn=dsn, password_command=("cat", str(password)))
    with world.capturing(Capture(replace(world.config, source=source))):
        world.await_durable(world.insert(1, 2))
        rotate("second")
        world.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
        world.await_durable(world.insert(3, 4))
    assert not world.errors
    world.sql(f"DROP ROLE {role}")


def test_the_server_may_go_and_come_back(own_world: World) -> None:
    own_world.make_slots()
    with own_world.capturing():
        own_world.insert(1, 3000)
        own_world.server.restart()
        own_world.insert(3001, 6000)
        own_world.sql("CHECKPOINT")
        own_world.server.kill()
        own_world.server.start()
        own_world.insert(6001, 9000)
        own_world.await_durable(own_world.wal_end())
    assert own_world.errors == []
    assert own_world.captured() == own_world.expected()


def test_what_an_administrator_cancels_goes_on(world: World) -> None:
    world.make_slots()
    walsenders = "FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid"
    with world.capturing():
        for first in (1, 101, 201):
            world.insert(first, first + 99)
            world.await_durable(world.wal_end())
            before = world.sql(f"SELECT pid {walsenders} WHERE slot_name = '{world.name}'")
            world.sql(f"SELECT pg_cancel_backend(pid) {walsenders} WHERE slot_name = '{world.name}'")
            eventually(lambda b=before: world.sql(f"SELECT pid {walsenders}") not in ([], b), world.errors)  # type: ignore[misc]
    assert world.captured() == world.expected()


def test_pauses_grow_while_no_stream_brings_anything(own_world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As when the server crashes over what it is to send: each try would crash it again."""
    own_world.make_slots()
    walsender = f"FROM pg_replication_slots WHERE slot_name = '{own_world.name}' AND active"
    with own_world.capturing():
        for tried in range(1, 13):  # the server's own WAL may count as progress now and then
            eventually(lambda: own_world.sql(f"SELECT 1 {walsender}"), own_world.errors)
            own_world.sql(f"SELECT pg_terminate_backend(active_pid) {walsender}")
            eventually(lambda n=tried: caplog.text.count("Trying again") >= n, own_world.errors)  # type: ignore[misc]
            if "Trying again in 2 s." in caplog.text:
                return
    pytest.fail("every pause was short")


def test_a_blocked_writer_does_not_lose_the_connection(impatient: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a buffer far smaller than the data, so that reading stops as well."""
    impatient.make_slots()
    append, new_session, sessions = LogWriter.append, LogWriter.new_session, list[LogWriter]()

    def slow(self: LogWriter, batch: list[bytes]) -> object:
        time.sleep(7.0 if not self.log.segments else 0)  # longer than wal_sender_timeout, twice
        self.log.refresh()
        return append(self, batch)

    def counted(self: LogWriter) -> None:
        sessions.append(self)
        new_session(self)

    monkeypatch.setattr(LogWriter, "append", slow)
    monkeypatch.setattr(LogWriter, "new_session", counted)
    small = replace(impatient.config.log, segment_bytes=100_000)
    with impatient.capturing(Capture(replace(impatient.config, log=small))):
        impatient.insert(1, 200_000)
        impatient.await_durable(impatient.wal_end())
    assert len(sessions) == 1
    assert impatient.captured() == impatient.expected()


def test_a_full_disk_loses_nothing(world: World) -> None:
    world.make_slots()
    world.insert(1, 100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with world.capturing():
        world.await_durable(world.wal_end())
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            world.insert(101, 50_000)
            eventually(lambda: world.errors)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(world.errors[0], LogFullError)
    assert "Make room" in str(world.errors.pop())
    assert world.confirmed() <= world.log.durable_lsn()
    assert not list(world.path.glob("segments/.*.tmp"))
    with world.capturing():
        world.await_durable(world.wal_end())
    assert world.captured() == world.expected()


@pytest.fixture
def world_of_small_disk(tmp_path: Path) -> Iterator[World]:
    """Its server has little room for what logical decoding spills."""
    with EmbeddedPostgres(settings={"logical_decoding_work_mem": "64kB"}) as server:
        slots = server.data_dir / "pg_replslot"
        options = f"size=256k,uid={server.data_dir.stat().st_uid},mode=700"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", slots], check=False).returncode:
            pytest.skip("a small file system can be mounted by root only")
        world = World(server, tmp_path / "log")
        world.setup()
        try:
            yield world
        finally:
            server.stop()
            subprocess.run(["umount", slots], check=True)


def test_a_full_disk_of_the_server_is_waited_out(world_of_small_disk: World, caplog: pytest.LogCaptureFixture) -> None:
    """Capture holds the slot, and with it the WAL that fills such a disk: it must not give up."""
    world = world_of_small_disk
    world.make_slots()
    source = replace(world.config.source, streaming=False)  # what is streamed is not spilled
    with world.capturing(Capture(replace(world.config, source=source))):
        world.insert(1, 100)
        world.await_durable(world.wal_end())
        world.insert(101, 20_000)
        eventually(lambda: caplog.text.count("SQLSTATE 53100") > 1, world.errors)
        slots = str(world.server.data_dir / "pg_replslot")
        subprocess.run(["mount", "-o", "remount,size=100m", slots], check=True)
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert world.captured() == world.expected()


def failure(world: World) -> Exception:
    with world.capturing():
        eventually(lambda: world.errors)
    return world.errors.pop()


def test_a_slot_ahead_of_the_log_is_refused(world: World) -> None:
    with world.capturing():
        world.insert(1, 3)
        world.await_durable(world.wal_end())
    world.insert(4, 6)
    world.sql("SELECT pg_switch_wal()")  # only what is flushed can be forgotten
    world.sql(f"SELECT pg_replication_slot_advance('{world.name}', pg_current_wal_lsn())")
    error = failure(world)
    assert isinstance(error, LogMismatchError)
    assert "ahead of the change log" in str(error)


def test_a_position_that_is_lost_costs_no_copy(world: World) -> None:
    """An idle stream has moved the slot beyond all segments, and nothing but the position says that nothing lacks."""
    with world.capturing():
        world.await_durable(world.insert(1, 10))
        eventually(lambda: world.confirmed() > world.log.last_end_lsn, world.errors)
    (world.path / "position.json").unlink()
    with world.capturing():
        world.await_durable(world.insert(11, 20))
    assert world.errors == []
    for name in ("position.json", "position.copy.json"):
        (world.path / name).unlink()
    with world.capturing():  # it ended with a transaction, or the slot is ahead of what it has
        eventually(lambda: world.errors or world.confirmed() <= world.durable())
    assert all("ahead of the change log" in str(error) for error in world.errors)


def test_a_log_that_was_deleted_is_not_begun_anew_beside_its_lake(world: World, tmp_path: Path) -> None:
    """What the log had, and the lake does not, the slot does not send again."""
    config = replace(world.config, lake=LakeConfig(str(tmp_path / "lake")))
    with world.capturing(Capture(config)):
        world.await_durable(world.insert(1, 10))
    (tmp_path / "lake" / "public" / world.name).mkdir(parents=True)
    shutil.rmtree(world.path)
    with pytest.raises(
        LogMismatchError, match=r"its change log .* does not, and the lake .*`wal2lake drop`, then `wal2l"
    ):
        Capture(config).run(threading.Event())
    (finding,) = change_log_findings(config)
    assert (finding.level, "does not, and the lake" in finding.text) == ("error", True)
    settings = {"WAL2LAKE_SOURCE_DSN": world.server.dsn, "WAL2LAKE_SOURCE_SLOT": world.name}
    dropped = CliRunner().invoke(app, ["drop", "--yes", "--config", configured(tmp_path)], env=settings)
    assert (dropped.exit_code, world.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{world.name}'")) == (
        0,
        [],
    )
    assert change_log_findings(config) == []
    with world.capturing(Capture(config)):
        world.await_durable(world.insert(11, 20))
    assert world.errors == []


def configured(folder: Path) -> str:
    file = folder / "wal2lake.toml"
    file.write_text("[source]\n")
    return str(file)


def test_a_slot_that_a_crash_left_without_its_log_is_taken_over_beside_a_lake(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(world.config, lake=LakeConfig(str(tmp_path / "lake")))
    (tmp_path / "lake" / "public" / world.name).mkdir(parents=True)

    class Crash(Exception):
        """The process dies."""

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(ChangeLog, "create", die)
        Capture(config).run(threading.Event())
    assert world.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{world.name}'")
    with world.capturing(Capture(config)):
        world.await_durable(world.insert(1, 10))
    assert (world.errors, (world.path / "slot.json").exists()) == ([], False)


def test_a_slot_that_is_gone_in_use_or_lost_is_named(own_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = own_world
    monkeypatch.setattr("wal2lake.capture.startup.PATIENCE_S", 0.5)
    with world.capturing():
        world.insert(1, 3)
        world.await_durable(world.wal_end())
        other = World(world.server, world.path.with_name("other"), world.name)
        in_use = failure(other)
        again = failure(world)
    assert isinstance(in_use, SlotInUseError)
    assert "server process" in str(in_use)
    assert isinstance(again, SlotInUseError)
    assert f"pid {os.getpid()}" in str(again)
    world.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; ")
    world.sql("SELECT pg_reload_conf()")
    for _ in range(3):
        world.insert(10, 10_000)
        world.sql(f"SELECT pg_switch_wal(); DELETE FROM {world.name} WHERE id > 9; CHECKPOINT")
    assert isinstance(failure(world), SlotLostError)
    world.sql(f"SELECT pg_drop_replication_slot('{world.name}')")
    assert isinstance(failure(world), SlotMissingError)
    world.sql("ALTER SYSTEM RESET max_slot_wal_keep_size")
    world.sql("SELECT pg_reload_conf()")


def test_a_walsender_that_has_not_noticed_yet_is_waited_for(impatient: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was cut off leaves one behind, until wal_sender_timeout; here it is stopped and so says nothing."""
    monkeypatch.setattr("wal2lake.capture.startup.PATIENCE_S", 0.5)
    impatient.make_slots()
    with impatient.spawn() as gone:
        impatient.insert(1, 10)
        impatient.await_durable(impatient.wal_end())
        gone.send_signal(signal.SIGSTOP)
        other = World(impatient.server, impatient.path.with_name("other"), impatient.name)
        try:
            with other.capturing():
                impatient.insert(11, 20)
                other.await_durable(impatient.wal_end())
        finally:
            gone.kill()


def test_a_capture_that_is_ending_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Its parent was killed, say, and another one is here at once."""
    world.make_slots()
    with world.spawn() as ending:
        world.insert(1, 10)
        world.await_durable(world.wal_end())
        with caplog.at_level(logging.INFO), world.capturing():
            eventually(lambda: "Waiting for it to end" in caplog.text, world.errors)
            ending.terminate()
            world.insert(11, 20)
            world.await_durable(world.wal_end())
    assert world.captured() == world.expected()


AWAITS = "waiting for running transactions to end"


def test_a_stop_does_not_wait_for_a_slot(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.make_slots()
    with psycopg.connect(world.server.dsn) as writing:
        writing.execute(f"INSERT INTO {world.name} VALUES (1, 'a')")
        other = World(world.server, world.path.with_name("other"), f"{world.name}_2")
        other.sql(f"CREATE PUBLICATION {other.name} FOR TABLE {world.name}")
        with other.capturing():  # its slot waits for that transaction
            eventually(lambda: read_progress(str(other.path)).capture_state == AWAITS, other.errors)
            assert "is being made" in " ".join(read_status(other.config).problems)
            asked = time.monotonic()
        assert time.monotonic() - asked < 3
        assert other.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{other.name}'") == []
        assert caplog.text.count("waits until the transactions that run now have ended") == 1
        assert "WARNING" in caplog.text
        other.sql(f"DROP PUBLICATION {other.name}")
    with world.capturing():
        world.await_durable(world.wal_end())
        with caplog.at_level(logging.INFO), other.capturing(Capture(replace(world.config, log=other.config.log))):
            eventually(lambda: "Waiting for it to end" in caplog.text, other.errors)
            asked = time.monotonic()
        assert time.monotonic() - asked < 3
    assert (world.errors, other.errors) == ([], [])


TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)


def test_timeouts_of_its_role_do_not_end_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The slot's making waits longer for a lock, a stream is one statement, and replaying is a transaction."""
    role = f"{world.name}_hurried"
    world.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    for name in TIMEOUTS:
        world.sql(f"ALTER ROLE {role} SET {name} = '200ms'")
    hurried = replace(world.config.source, dsn=world.server.dsn.replace("user=postgres", f"user={role}"))
    with psycopg.connect(world.server.dsn) as writing:
        writing.execute(f"INSERT INTO {world.name} VALUES (0, 'a')".encode())
        with world.capturing(Capture(replace(world.config, source=hurried))):
            eventually(lambda: read_progress(str(world.path)).capture_state == AWAITS, world.errors)
            time.sleep(1)  # all of these timeouts pass
            writing.commit()
            eventually(lambda: read_progress(str(world.path)).capture_state == "streaming", world.errors)
            world.insert(1, 300_000)
            world.await_durable(world.wal_end())
            time.sleep(1)  # the same, while nothing comes
            world.insert(300_001, 300_010)
            world.await_durable(world.wal_end())
    assert "Trying again" not in caplog.text
    assert sum(payload[:1] == b"I" for payload in world.captured()) == 300_010
    world.sql(f"DROP ROLE {role}")


def test_a_half_made_slot_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever began to make it was killed; its walsender does not notice while it waits for a transaction."""
    with psycopg.connect(world.server.dsn) as writing:
        writing.execute(f"INSERT INTO {world.name} VALUES (1, 'a')".encode())
        with world.spawn() as gone:
            eventually(lambda: read_progress(str(world.path)).capture_state == AWAITS)
            gone.kill()
        with world.capturing():
            eventually(lambda: "is being made" in caplog.text, world.errors)
            eventually(lambda: read_progress(str(world.path)).capture_state == "waiting", world.errors)
            assert "is being made" in " ".join(read_status(world.config).problems)
            findings = {finding.name: finding for finding in preflight(world.server.dsn, world.name, world.name)}
            assert "is being made" in findings["slot"].text
            writing.commit()
            eventually(lambda: read_progress(str(world.path)).capture_state == "streaming", world.errors)
            world.insert(2, 10)
            world.await_durable(world.wal_end())
    assert sum(payload[:1] == b"I" for payload in world.captured()) == 9


def test_a_slot_that_vanishes_while_it_is_looked_at_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.make_slots()

    def gone_behind_it(*arguments: Any) -> SlotState | None:
        monkeypatch.undo()
        state = slot_state(*arguments)
        world.sql(f"SELECT pg_drop_replication_slot('{world.name}')")
        return state

    monkeypatch.setattr("wal2lake.capture.startup.slot_state", gone_behind_it)
    with world.capturing():
        world.await_durable(world.wal_end())
    assert "Trying again" in caplog.text
    assert world.errors == []


def test_a_missing_publication_and_another_server(world: World, own_world: World) -> None:
    with world.capturing():
        world.await_durable(world.wal_end())
    elsewhere = World(own_world.server, world.path, own_world.name)
    error = failure(elsewhere)
    assert isinstance(error, LogMismatchError)
    assert "belongs to system_id" in str(error)
    world.sql(f"DROP PUBLICATION {world.name}")
    assert isinstance(failure(world), PublicationError)
