"""Transactions that are captured before their commit: the log has what committed, whatever ends whom when."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.capture.conftest import World
from tests.capture.test_unsendable import database
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.capture.startup import PLUGIN_OPTIONS
from wal2lake.capture.unsendable import Manner
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.plan import Extent
from wal2lake.columnar.headers import INSERT, STREAM_ABORT
from wal2lake.config import Config
from wal2lake.errors import LogFullError, ServerError
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

ROWS = 400  # of a statement; more than 64 kB of changes


@pytest.fixture
def streaming(short_of_memory: Config) -> Config:
    return replace(short_of_memory, source=replace(short_of_memory.source, streaming=True))


class Session:
    """A transaction of its own, and savepoints in it."""

    def __init__(self, world: World, stack: ExitStack, number: int) -> None:
        self.connection = stack.enter_context(psycopg.connect(world.server.dsn))
        self.name, self.at = world.name, number * 10**6

    def insert(self) -> None:
        rows = f"SELECT g, 'v' || g FROM generate_series({self.at + 1}, {self.at + ROWS}) g"
        self.connection.execute(f"INSERT INTO {self.name} {rows}".encode())
        self.at += ROWS

    def change(self, rng: random.Random) -> None:
        match rng.randrange(8):
            case 0:
                self.connection.execute(b"SAVEPOINT s")
                self.insert()
                self.connection.execute(f"UPDATE {self.name} SET v = NULL WHERE id = {self.at}".encode())
            case 1:
                self.connection.execute(b"SAVEPOINT r")
                self.insert()
                self.connection.execute(b"ROLLBACK TO SAVEPOINT r")
            case 2:
                self.connection.commit()
            case 3:
                self.connection.rollback()
            case _:
                self.insert()


def messages_of(log: ChangeLog, tag: int) -> int:
    """How many of a kind lie in the log, committed or not."""
    return sum(
        int((log.heads(log_rows)["tag"].to_numpy() == tag).sum())
        for log_rows in (Extent(s.seq, 0, s.rows) for s in log.segments)
    )


def test_they_are_in_the_log_before_they_commit(world: World, streaming: Config) -> None:
    """Also when the connection is lost meanwhile: then they come again whole."""
    world.make_slots()
    with world.capturing(Capture(streaming)), ExitStack() as stack:
        one, two, three = (Session(world, stack, number) for number in range(3))
        for session in (one, two, three, one, two):
            session.insert()
        one.connection.execute(b"SAVEPOINT a")
        for _ in range(3):
            one.insert()
        eventually(lambda: ChangeLog.exists(world.path) and messages_of(world.log, INSERT) > 5 * ROWS, world.errors)
        one.connection.execute(b"ROLLBACK TO SAVEPOINT a")
        one.insert()
        world.insert(-50, -1)
        eventually(lambda: messages_of(world.log, STREAM_ABORT), world.errors)
        world.sql(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{world.name}'")
        two.connection.commit()
        three.connection.rollback()
        one.insert()
        one.connection.commit()
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert any(segment.streamed for segment in world.log.segments)
    assert world.captured_changes() == world.expected_changes()
    assert list(verify_log(world.log.storage)) == []
    assert world.confirmed() == world.log.durable_lsn()


def test_a_full_disk_amid_a_transaction_costs_nothing(world: World, streaming: Config) -> None:
    """It comes again from its beginning, and what the log has of it counts no more."""
    world.make_slots()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ExitStack() as stack:
        one, two = (Session(world, stack, number) for number in range(2))
        with world.capturing(Capture(streaming)):
            for session in (one, two, one, two):
                session.insert()
            eventually(lambda: ChangeLog.exists(world.path) and messages_of(world.log, INSERT) > ROWS, world.errors)
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
            try:
                rows = "SELECT -g, md5(g::text) FROM generate_series(1, 20000) g"
                one.connection.execute(f"INSERT INTO {world.name} {rows}".encode())
                eventually(lambda: world.errors)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert isinstance(world.errors.pop(), LogFullError)
        two.connection.rollback()
        one.connection.commit()
        with world.capturing(Capture(streaming)):
            world.await_durable(world.wal_end())
    assert world.captured_changes() == world.expected_changes()
    assert list(verify_log(world.log.storage)) == []


def test_an_error_that_only_a_transaction_in_progress_may_meet_is_met_without_one() -> None:
    """What the server says of any other transaction is the end."""
    error = ServerError('could not map filenode "base/5/16613" to relation OID')
    whole = Manner(streaming=True, two_phase=True).beyond(error, "")
    assert whole == Manner() and whole.options == PLUGIN_OPTIONS
    with pytest.raises(ServerError, match="could not map filenode"):
        whole.beyond(error, "")


class Load(threading.Thread):
    """Four transactions by turns until it is stopped."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.stopped = world, threading.Event()

    def run(self) -> None:
        rng = random.Random(5)
        with ExitStack() as stack:
            sessions = [Session(self.world, stack, number) for number in range(4)]
            while not self.stopped.is_set():
                rng.choice(sessions).change(rng)
                time.sleep(0.005)  # a load, not a flood


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_or_doubled(world: World, streaming: Config) -> None:
    world.make_slots()
    load = Load(world)
    load.start()
    try:
        world.kill_captures(5, streaming.source)
    finally:
        load.stopped.set()
        load.join()
    end = world.wal_end()
    with world.capturing(Capture(streaming)):
        world.await_durable(end)
    assert world.captured_changes() == world.expected_changes()
    assert list(verify_log(world.log.storage)) == []


@pytest.fixture
def encoded(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[World]:
    with database(server, tmp_path / "log", "WIN1252") as world:
        world.sql(f"ALTER DATABASE {world.name} SET logical_decoding_work_mem = '64kB'")
        yield world


def test_what_cannot_be_sent_is_met_before_its_commit(encoded: World, caplog: pytest.LogCaptureFixture) -> None:
    """It may be rolled back; and if not, others may commit before it."""
    world = encoded
    config = replace(world.config, source=replace(world.config.source, streaming=True))
    bad = f"INSERT INTO {world.name} VALUES (%s, convert_from('\\x4181', 'WIN1252'))"
    with world.capturing(Capture(config)), ExitStack() as stack:
        one, two = (Session(world, stack, number) for number in (1, 2))
        for session in (one, two):
            session.connection.execute(bad.encode(), [session.at])
            session.insert()
        eventually(lambda: "takes no transaction before its commit" in caplog.text, world.errors)
        one.connection.rollback()
        world.insert(-50, -1)
        two.connection.commit()
        world.insert(-99, -60)
        world.await_durable(world.wal_end())
    assert world.errors == []
    assert "is read with text as the database stores it" in caplog.text
    changes = world.captured_changes()
    assert len(changes) == 50 + 1 + ROWS + 40
    assert changes[50].endswith(b"A\xff")
    assert world.confirmed() == world.log.durable_lsn()
