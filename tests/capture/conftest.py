"""A published table of one's own on the shared server, a slot, a twin of the slot to compare with, and a log."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.testing.embedded import EmbeddedPostgres

_CHANGES = (b"I", b"U", b"D", b"T")
_PROGRAM = """
import sys
from wal2lake.capture import run_capture
from wal2lake.config import Config
dsn, name, path, streaming, two_phase = sys.argv[1:]
before = {"streaming": streaming == "True", "two_phase": two_phase == "True"}
source = {"dsn": dsn, "slot": name, "publication": name, **before}
run_capture(Config.from_dict({"source": source, "log": {"path": path, "segment_seconds": 0.05}}))
"""


@dataclass
class World:
    """``name`` is table, publication and slot at once; ``errors`` is what captures in threads ended with."""

    server: EmbeddedPostgres
    path: Path
    name: str = field(default_factory=lambda: f"c{uuid4().hex[:10]}")
    errors: list[Exception] = field(default_factory=list)

    @property
    def config(self) -> Config:
        source = SourceConfig(self.server.tcp_dsn, self.name, self.name)
        return Config(source, LogConfig(str(self.path), segment_seconds=0.05))

    @property
    def log(self) -> ChangeLog:
        return ChangeLog.open(self.path)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def setup(self) -> None:
        self.sql(f"CREATE TABLE {self.name} (id bigint PRIMARY KEY, v text)")
        self.sql(f"CREATE PUBLICATION {self.name} FOR TABLE {self.name}")

    def make_slots(self) -> None:
        """The slot, and beside it a twin at the same point that nothing ever moves."""
        self.sql(f"SELECT pg_create_logical_replication_slot('{self.name}', 'pgoutput')")
        self.sql(f"SELECT pg_copy_logical_replication_slot('{self.name}', '{self.name}_twin')")

    def teardown(self) -> None:
        like = f"slot_name LIKE '{self.name}%'"
        eventually(lambda: not self.sql(f"SELECT 1 FROM pg_replication_slots WHERE active AND {like}"))
        self.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {like}")
        self.sql(f"DROP PUBLICATION IF EXISTS {self.name}")
        self.sql(f"DROP TABLE {self.name}")

    def insert(self, first: int, last: int) -> LSN:
        """Rows of one transaction. Returns an LSN that its commit record is not before: up to there nothing of it has
        to be kept for anybody who must not miss it."""
        with psycopg.connect(self.server.dsn) as connection:
            connection.execute(
                f"INSERT INTO {self.name} SELECT g, 'v' || g FROM generate_series({first}, {last}) g".encode()
            )
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return LSN.parse(row[0])

    def confirmed(self) -> LSN:
        query = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.name}'"
        return LSN.parse(self.sql(query)[0][0])

    def wal_end(self) -> LSN:
        return LSN.parse(self.sql("SELECT pg_current_wal_insert_lsn()::text")[0][0])

    def durable(self) -> LSN:
        return self.log.durable_lsn() if ChangeLog.exists(self.path) else LSN(0)

    def await_durable(self, lsn: LSN) -> None:
        eventually(lambda: self.durable() >= lsn, self.errors)

    @contextmanager
    def capturing(self, capture: Capture | None = None) -> Iterator[threading.Event]:
        """A capture in a thread; what it raised is in ``errors`` afterwards."""
        stop = threading.Event()

        def run() -> None:
            try:
                (capture or Capture(self.config)).run(stop)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(30)
            assert not thread.is_alive()

    def spawn(self, source: SourceConfig | None = None) -> subprocess.Popen[bytes]:
        """A capture in a process of its own; ``source``: with that one's DSN, and by its manner."""
        source = source or replace(self.config.source, dsn=self.server.dsn)
        manner = (str(source.streaming), str(source.two_phase))
        command = [sys.executable, "-c", _PROGRAM, source.dsn, self.name, str(self.path), *manner]
        return subprocess.Popen(command, env=os.environ | {"PYTHONWARNINGS": "error"})

    def kill_captures(self, turns: int, source: SourceConfig | None = None) -> None:
        """So many captures one after another, each killed at any moment; what is acknowledged is durable
        each time."""
        start, rng = self.confirmed(), random.Random(20)
        for turn in range(turns):
            before = self.durable()
            capture = self.spawn(source)
            if turn % 3:  # else it may still be starting
                eventually(lambda known=before: self.durable() > known)  # type: ignore[misc]
            time.sleep(rng.uniform(0.0, 0.4))  # any moment
            capture.send_signal(signal.SIGKILL)
            assert capture.wait() == -signal.SIGKILL  # it was alive
            assert self.confirmed() <= max(self.durable(), start)

    def captured_changes(self) -> list[bytes]:
        """Of all committed transactions, however they came: their changes, in the order of the commits."""
        return [payload for payload in self.captured() if payload[:1] in _CHANGES]

    def expected_changes(self) -> list[bytes]:
        return [payload for payload in self.expected() if payload[:1] in _CHANGES]

    def captured(self) -> list[bytes]:
        """The messages of all committed transactions in the log, but for what a session announces by itself."""
        log = self.log
        rows = (p for e in log.plan(0, log.last_end_lsn) for p in log.read(e).column("payload").to_pylist())
        return [payload for payload in rows if payload[:1] not in (b"R", b"Y")]

    def expected(self) -> list[bytes]:
        """The same as PostgreSQL itself reads it from the twin."""
        rows = self.sql(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{self.name}_twin', NULL, NULL,"
            f" 'proto_version', '1', 'publication_names', '{self.name}')"
        )
        return [bytes(data) for (data,) in rows if bytes(data[:1]) not in (b"R", b"Y")]


@pytest.fixture
def short_of_memory(world: World) -> Iterator[Config]:
    """The world's configuration, for a role whose transactions outgrow logical_decoding_work_mem soon."""
    role = f"{world.name}_short"
    world.sql(f"CREATE ROLE {role} LOGIN SUPERUSER")
    world.sql(f"ALTER ROLE {role} SET logical_decoding_work_mem = '64kB'")
    dsn = world.server.dsn.replace("user=postgres", f"user={role}")
    yield replace(world.config, source=replace(world.config.source, dsn=dsn))
    world.sql(f"DROP ROLE {role}")


@pytest.fixture
def world(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[World]:
    world = World(server, tmp_path / "log")
    world.setup()
    yield world
    world.teardown()
