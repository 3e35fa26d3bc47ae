"""One database, its capture, and the pipeline in this process: real catalogs, stream, log and Delta commits, no Spark.

What a case did is judged here by code of its own: the server's rows beside the lake's, as values and nothing else.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from deltalake import DeltaTable
from psycopg import sql

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
_NATIVE = (16, 20, 21, 23, 25, 26, 700, 701, 1043, 1114, 1184)
_MARKER = "public.marker"
_DEADLINE_S = 60.0
_OUTPUT = "CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END"  # by the type's output function, no cast
_PUBLISHED = """
SELECT c.oid::int, p.tablename, p.rowfilter, c.relkind = 'p'
  FROM pg_publication_tables p
  JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = to_regnamespace(quote_ident(p.schemaname))
 WHERE p.pubname = 'pub' AND p.schemaname = %s
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::int
  FROM pg_publication_tables p
  JOIN pg_attribute a ON a.attname = ANY (p.attnames) AND a.attrelid = %s AND a.attnum > 0
 WHERE p.pubname = 'pub' AND p.schemaname = %s AND p.tablename = %s
 ORDER BY a.attnum
"""


class Here:
    """The port to Spark, without one: every task in this thread."""

    parallelism = 2

    def run(self, task: Any, items: Sequence[Any], tag: str = "") -> list[Any]:
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

    def published(self, schema: str) -> list[str]:
        return [name for _, name, *_ in self.connection.execute(_PUBLISHED, [schema])]

    def difference(self, schema: str) -> str | None:
        """What of the schema's published tables the lake has otherwise, in words; None where all is equal."""
        for oid, name, row_filter, partitioned in self.connection.execute(_PUBLISHED, [schema]).fetchall():
            columns = self.connection.execute(_COLUMNS, [oid, schema, name]).fetchall()
            source = Counter(self._rows(schema, name, columns, row_filter, partitioned))
            lake = Counter(self._lake_rows(schema, name, [column for column, _ in columns]))
            if source != lake:
                return f"{name}: only the source has {list(source - lake)[:3]}, only the lake {list(lake - source)[:3]}"
        return None

    def _rows(
        self, schema: str, name: str, columns: Sequence[tuple[str, int]], row_filter: str | None, partitioned: bool
    ) -> list[tuple[str | None, ...]]:
        wanted = sql.SQL(", ").join(
            sql.SQL("{0}" if oid in _NATIVE else _OUTPUT).format(sql.Identifier(column)) for column, oid in columns
        )
        only = sql.SQL("" if partitioned else "ONLY ")
        query = sql.SQL("SELECT {} FROM {}{}").format(wanted, only, sql.Identifier(schema, name))
        if row_filter:
            query += sql.SQL(" WHERE ") + sql.SQL(row_filter)
        return [tuple(map(_text, row)) for row in self.connection.execute(query)]

    def _lake_rows(self, schema: str, name: str, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
        path = f"{self.config.lake.path}/{schema}/{name}"
        if not DeltaTable.is_deltatable(path):
            return [("no table",)]
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        return [tuple(_text(row.get(column)) for column in columns) for row in rows]


def _text(value: Any) -> str | None:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return None if value is None else str(value)
