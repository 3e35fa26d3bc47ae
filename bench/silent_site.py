"""A database, its capture, and the pipeline in this process: real catalogs, stream, log and Delta commits, no Spark."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, PipelineConfig, SourceConfig
from wal2lake.errors import Wal2LakeError
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.fair_lock import FairLock
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.pipeline.tablesync import TableSync
from wal2lake.spark.jobs import attempt
from wal2lake.tables.state import TableState
from wal2lake.tables.table import Tables
from wal2lake.tables.table_folder import TableFolder
from wal2lake.testing.embedded import EmbeddedPostgres

_numbers = itertools.count()
_MARKER = "public.marker"
_DEADLINE_S = 60.0


class Here:
    """The port to Spark, without one: every task in this thread."""

    parallelism = 2

    def run(self, task: Any, items: Sequence[Any], tag: str = "", *, small: bool = False) -> list[Any]:
        return [attempt(task, item) for item in items]

    def cancel(self, tag: str) -> None:
        raise AssertionError("nobody else runs")


class Site:
    """A context manager: a database with the publication pub, a capture that runs, and a pipeline that is asked to."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, options: str) -> None:
        self.name = f"silent{next(_numbers)}"
        server.psql(f"CREATE DATABASE {self.name}")
        self._server = server
        dsn = server.dsn.replace("dbname=postgres", f"dbname={self.name}")
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute("SET synchronous_commit TO on; SET timezone TO 'UTC'")
        self.sql(f"CREATE TABLE {_MARKER} (id bigserial PRIMARY KEY)", f"CREATE PUBLICATION pub {options}")
        self.config = Config(
            source=SourceConfig(dsn=dsn, publication="pub", slot=self.name),
            log=LogConfig(path=str(folder / self.name / "log"), segment_seconds=0.05),
            lake=LakeConfig(path=str(folder / self.name / "lake")),
            pipeline=PipelineConfig(),
        )
        self._stop = threading.Event()
        self._failure: list[BaseException] = []
        self._thread = threading.Thread(target=self._capture, daemon=True)
        self._position = 0
        self._batches: Batches

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.connection.close()
        self._server.psql(f"SELECT pg_drop_replication_slot('{self.name}')")
        self._server.psql(f"DROP DATABASE {self.name} WITH (FORCE)")

    def _capture(self) -> None:
        try:
            Capture(self.config).run(self._stop)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the log raises it
            self._failure.append(error)

    def sql(self, *statements: str) -> None:
        """Each is a transaction of its own."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def captured(self) -> ChangeLog:
        """The log, as soon as it holds all that has committed by now."""
        self.sql(f"INSERT INTO {_MARKER} DEFAULT VALUES")
        row = self.connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline and not self._failure:
            with suppress(Wal2LakeError, FileNotFoundError):  # it is being made
                if (log := ChangeLog.open(self.config.log.path)).durable_lsn() >= (row or (0,))[0]:
                    return log
            time.sleep(0.02)
        raise self._failure[0] if self._failure else TimeoutError("Capture does not come along.")

    def start(self) -> None:
        """A pipeline that knows nothing but what is durable."""
        log = self.captured()
        tables, waiting = Tables(self.config), Interrupts(threading.Event())
        snapshots = Snapshots(self.config, Here(), tables, log.start_lsn, waiting)
        self._batches = Batches(self.config, Here(), log, tables, snapshots)
        self._sync = TableSync(self._batches, FairLock(), waiting, lambda: self._position)
        self._position = self._position or log.start_lsn
        self.look()

    def batch(self) -> None:
        """All that has committed by now, as one batch."""
        end = self.captured().last_end_lsn
        if end > self._position:
            self._batches.apply(self._position, end)
            self._position = end

    def look(self) -> None:
        """What the pipeline does now and then, and what runs beside the stream."""
        self._batches.discover(self._position)
        self._sync.synchronize()

    def settle(self) -> None:
        for _ in range(3):
            self.batch()
            self.look()

    def state(self, schema: str, table: str) -> TableState:
        return TableFolder(self.config.log.path, self.config.pipeline.name, schema, table).read()
