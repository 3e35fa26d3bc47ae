"""Whatever dies, and whenever, the tables end up equal to their source, and PostgreSQL is never told too much.

Each round kills capture and one of Spark's Python workers twice and the driver once, with SIGKILL, in any order and at
random moments under load, and then verifies. The first kills fall into the snapshot, those of each later round upon a
table that has just been made, and comes into the lake beside the stream.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import psutil
import psycopg
import pytest
from rich.console import Console

from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.demo.shop import shop_config
from wal2lake.demo.workload import Workload
from wal2lake.lsn import LSN
from wal2lake.run.supervisor import RestartPolicy, Supervisor
from wal2lake.run.verifying import verify_beside
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

SEED = int(os.environ.get("WAL2LAKE_KILLS_SEED", "1"))  # another seed, other moments
ROUNDS = 4 if "WAL2LAKE_KILLS_SEED" in os.environ else 2  # the short form is everybody's
ROLES = ("capture", "capture", "worker", "worker", "driver")
TICK_S = 0.1
NEW_TABLE = """
BEGIN;
CREATE TABLE shop.{name} (LIKE shop.orders INCLUDING INDEXES);
CREATE FUNCTION shop.follow_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'INSERT' THEN DELETE FROM shop.{name} WHERE id = OLD.id; END IF;
        IF TG_OP <> 'DELETE' THEN INSERT INTO shop.{name} SELECT NEW.*; END IF;
        RETURN NULL;
    END $$;
CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON shop.orders FOR EACH ROW
    EXECUTE FUNCTION shop.follow_{name}();
INSERT INTO shop.{name} SELECT * FROM shop.orders;
COMMIT
"""


class AcknowledgementWatch(threading.Thread):
    """Asserts, all the time, that confirmed_flush_lsn has not passed what is durable in the change log."""

    def __init__(self, dsn: str, config: Config) -> None:
        super().__init__(name="watch", daemon=True)
        self.violations: list[str] = []
        self.checks = 0
        self._dsn, self._config = dsn, config
        self._ended = threading.Event()
        self._log: ChangeLog | None = None

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._ended.wait(TICK_S):
                self._check(connection)

    def _check(self, connection: psycopg.Connection) -> None:
        row = connection.execute(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
            [self._config.source.slot],
        ).fetchone()
        if row is None or not ChangeLog.exists(self._config.log.path):
            return
        self._log = self._log or ChangeLog.open(self._config.log.path)
        self._log.refresh()
        durable = self._log.durable_lsn()  # read after, and it only grows
        self.checks += 1
        if LSN.parse(row[0]) > durable:
            self.violations.append(f"confirmed {row[0]}, durable {LSN(durable)}")

    def finish(self) -> None:
        self._ended.set()
        self.join()


class Run:
    """A shop, its workload and a supervised pipeline whose parts can be killed."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        shop = shop_config(server.dsn, folder)
        self.config = replace(
            shop,
            log=replace(shop.log, segment_seconds=0.2, retention_seconds=5.0),
            pipeline=replace(shop.pipeline, snapshot_chunk_bytes=1 << 20, trigger_seconds=1.0),
        )
        often = RestartPolicy(pauses_s=(0.5, 2.0))  # not up to 30 s for who dies often
        self.supervisor = Supervisor(self.config, often)
        self.workload = Workload(server.dsn, seed, large_every_s=30)  # moments matter here, not volume
        self.watch = AcknowledgementWatch(server.dsn, self.config)
        self.killed: list[str] = []
        self.tables = 8

    def ticks(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.supervisor.tick()
            time.sleep(TICK_S)  # as `run` ticks

    def kill(self, role: str) -> None:
        """SIGKILL ``role``, waiting for it to be there first."""
        deadline = time.monotonic() + 180
        while not (victims := list(self._victims(role))):
            assert time.monotonic() < deadline, f"no {role} to kill"
            self.ticks(5 * TICK_S)  # looking through all processes costs more than a tick
        self.random.choice(victims).kill()
        self.killed.append(role)

    def _victims(self, role: str) -> Iterator[psutil.Process]:
        pid = self.supervisor.children["capture" if role == "capture" else "pipeline"].pid
        if pid is None:
            return
        process = psutil.Process(pid)
        if role != "worker":
            yield process
            return
        yield from (child for child in process.children(recursive=True) if _is_python_worker(child))

    def verify(self) -> None:
        report = verify_beside(self.config, Console(stderr=True), self.supervisor.tick)
        assert [f"{t.row()} {t.findings()} {report.note}" for t in report.tables if not t.ok] == []
        assert len(report.tables) == self.tables


def _is_python_worker(process: psutil.Process) -> bool:
    """Forked by a pyspark.daemon, and alive."""
    try:
        parent = process.parent()
        return parent is not None and all("pyspark.daemon" in p.cmdline() for p in (process, parent))
    except psutil.NoSuchProcess:
        return False


def test_whatever_is_killed_the_tables_end_up_equal(tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        server.psql((files("wal2lake.demo") / "schema.sql").read_text())
        run = Run(server, tmp_path, SEED)
        run.supervisor.start()
        run.workload.start()
        run.watch.start()
        try:
            for number in range(ROUNDS):
                if number:
                    server.psql(NEW_TABLE.format(name=f"copy_{number}"))
                    run.tables += 1
                for role in run.random.sample(ROLES, len(ROLES)):
                    run.ticks(run.random.uniform(0.2, 3.0))
                    run.kill(role)
                run.verify()
            run.workload.finish()
            run.verify()
        finally:
            run.supervisor.kill()
            run.watch.finish()
    assert len(run.killed) == len(ROLES) * ROUNDS
    assert run.watch.checks > 20
    assert not run.watch.violations
    assert ChangeLog.open(run.config.log.path).segments[0].seq > 0, "what is applied everywhere was never removed"
