"""A source, its log and its lake for one test. The log is filled step by step, so every test is deterministic.

``site`` runs the pipeline's functions in this process, one task after the other; ``spark_site`` runs all of it.
"""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from wal2lake.capture.frames import without_headers
from wal2lake.changelog.format import LogIdentity
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.config import Config, LakeConfig, LogConfig, PipelineConfig, SourceConfig
from wal2lake.errors import UnrepresentableError
from wal2lake.lsn import LSN
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.fair_lock import FairLock
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.pipeline.tablesync import TableSync
from wal2lake.spark.jobs import attempt
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.tables.state import TableState
from wal2lake.tables.table import Tables
from wal2lake.tables.table_folder import TableFolder
from wal2lake.testing.embedded import EmbeddedPostgres

_numbers = itertools.count()
_CHANGES = """
SELECT lsn::text, data FROM pg_logical_slot_get_binary_changes(
    %s, NULL, NULL, 'publication_names', %s, 'proto_version', '2', 'streaming', %s)
"""


class Site:
    """One database with publication and slot ``pub``, a log and a lake below ``folder``."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, database: str = "") -> None:
        """``database``: options of CREATE DATABASE."""
        self.name = f"site{next(_numbers)}"
        server.psql(f"CREATE DATABASE {self.name} {database}")
        self.dsn = server.dsn.replace("dbname=postgres", f"dbname={self.name}")
        self.connection = psycopg.connect(self.dsn, autocommit=True)
        self.connection.execute("SET synchronous_commit TO on")  # decoding sees only what is flushed
        self.config = self.configure(folder)
        self.position = 0
        self.streaming = False
        self.stop = threading.Event()
        self.waiting = Interrupts(self.stop)
        self._writer: LogWriter | None = None

    def configure(
        self, folder: Path, *, mode: Any = "mirror", lake: Mapping[str, Any] | None = None, **pipeline: Any
    ) -> Config:
        self.config = Config(
            source=SourceConfig(dsn=self.dsn, publication="pub", slot=self.name),
            log=LogConfig(path=str(folder / "log")),
            lake=LakeConfig(**{"path": str(folder / "lake"), "mode": mode, **(lake or {})}),
            pipeline=PipelineConfig(**{"trigger_seconds": 0.1, "on_unfollowable": "quarantine", **pipeline}),
        )
        return self.config

    def configure_pipeline(self, **pipeline: Any) -> None:
        self.config = replace(self.config, pipeline=replace(self.config.pipeline, **pipeline))

    def sql(self, *statements: str) -> None:
        """Each statement is a transaction of its own."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def publish(self, *tables: str) -> None:
        """Make the publication, the slot and the empty log."""
        self.sql(f"CREATE PUBLICATION pub FOR TABLE {', '.join(tables)}")
        row = self.connection.execute(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name]
        ).fetchone()
        assert row is not None
        self.identity = LogIdentity("1", 1, self.name, self.name, "pub", LSN.parse(row[0]))
        ChangeLog.create(self.config.log.path, self.identity)

    def capture(self) -> None:
        """Move all that has committed into the log, in one segment."""
        rows = self.connection.execute(_CHANGES, [self.name, "pub", str(self.streaming)]).fetchall()
        sent = [b"w" + LSN.parse(lsn).to_bytes(8) + bytes(16) + data for lsn, data in rows]
        with nullcontext(self._writer) if self._writer else LogWriter(self.config.log.path, self.identity) as writer:
            for part in filter(None, self.cut(sent)):
                writer.append(without_headers(part, in_chunk=writer.in_chunk))

    @contextmanager
    def one_session(self) -> Iterator[None]:
        """What is captured in the block is one connection's to the log, as with a capture that runs on."""
        with LogWriter(self.config.log.path, self.identity) as self._writer:
            yield
        self._writer = None

    @staticmethod
    def cut(sent: list[bytes]) -> list[list[bytes]]:
        """The segments that captured messages go into."""
        return [sent]

    def run(self) -> None:
        """Capture, then let the pipeline start, apply what the log has, and end."""
        self.capture()
        log = ChangeLog.open(self.config.log.path)
        batches = self.batches(log)
        batches.discover(self.position or log.start_lsn)
        self.apply(batches)
        self.synchronize(batches)
        batches.require_none_quarantined()

    def apply(self, batches: Batches, end: int | None = None) -> None:
        """Apply what has committed by now as one batch, or what the log has up to ``end``."""
        if end is None:
            self.capture()
        log = ChangeLog.open(self.config.log.path)
        start, end = self.position or log.start_lsn, end or log.last_end_lsn
        batches.apply(start, end)
        self.position = end

    def synchronize(self, batches: Batches) -> None:
        """What a thread does beside the stream."""
        sync = TableSync(batches, FairLock(), self.waiting, lambda: self.position)
        for _ in range(5):  # what catches up may turn out to have to be read anew
            sync.synchronize()
            if not batches.tables.synchronizing():
                break

    def batches(self, log: ChangeLog) -> Batches:
        tables = Tables(self.config)
        snapshots = Snapshots(self.config, LocalJobs(), tables, log.start_lsn, self.waiting)
        return Batches(self.config, LocalJobs(), log, tables, snapshots)

    def begin_new_log(self) -> None:
        """Begin a new log where the old one ends, as a new capture does with a slot that is there."""
        self.identity = replace(self.identity, start_lsn=ChangeLog.open(self.config.log.path).last_end_lsn)
        Path(self.config.log.path).rename(f"{self.config.log.path}~old")
        ChangeLog.create(self.config.log.path, self.identity)
        self.position = 0

    def source(self, table: str) -> list[tuple[Any, ...]]:
        rows = self.connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
        return sorted(rows, key=repr)

    def lake(self, table: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.lake_table(table).to_pylist()), key=repr)

    def lake_table(self, table: str) -> pa.Table:
        place = self.config.lake.place.table(*table.split("."))
        found = DeltaTable(place.uri, storage_options=place.storage_options())
        return found.to_pyarrow_table() if place.is_local else pa.table(found.scan())  # which lets the store answer

    def log(self) -> ChangeLog:
        return ChangeLog.open(self.config.log.path)

    def folder_of_lake(self, table: str) -> Path:
        """Of a table of the schema public."""
        return Path(self.config.lake.path) / "public" / table

    def folder(self, table: str) -> TableFolder:
        namespace, name = table.split(".")
        return TableFolder(self.config.log.path, self.config.pipeline.name, namespace, name)

    def documents(self, table: str) -> Path:
        """Where the table's documents are."""
        return Path(self.config.log.path) / self.folder(table).documents.folder

    def count_chunks(self, table: str) -> int:
        """The table's finished chunks."""
        return len(list(self.documents(table).glob("chunk-*.json")))

    def state(self, table: str) -> TableState:
        """What is durable about the table."""
        return self.folder(table).read()

    def status(self) -> dict[str, Any]:
        """What the pipeline last said; empty before it said anything."""
        path = Path(self.config.log.path) / "status/pipeline.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def same(self, *tables: str) -> None:
        for table in tables:
            assert self.lake(table) == self.source(table), table


class SparkSite(Site):
    def run(self) -> None:
        self.capture()
        run_pipeline(self.config, available_now=True)


def run_here(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """a job without a JVM; what travels is pickled all the same."""
    return [pickle.loads(pickle.dumps(attempt(task, pickle.loads(pickle.dumps(item))))) for item in items]


class LocalJobs:
    """The port to Spark, without one. ``copy`` runs the snapshots' tasks, ``apply`` the batches'."""

    parallelism = 2
    copy = apply = run_here

    def run(self, task: Callable[[Any], Any], items: Sequence[Any], tag: str = "", *, small: bool = False) -> list[Any]:
        return self.copy(task, items) if tag else self.apply(task, items)

    def cancel(self, tag: str) -> None:
        raise AssertionError("nobody else runs")


class LocalEngine:
    """The whole port. Its stream makes a batch of what the log has whenever it is waited for.

    ``starting`` is called where Spark would be started: the pipeline runs and has its log, and nothing else yet.
    """

    def __init__(self, site: Site, starting: Callable[[], object] = lambda: None) -> None:
        self.site = site
        self._starting = starting

    def committed_lsn(self) -> int | None:
        return self.site.position or None

    def __enter__(self) -> LocalJobs:
        self._starting()
        return LocalJobs()

    def __exit__(self, *failure: object) -> None:
        return None

    def stream(self, beginning: int, batch: Callable[[int, int, int], None], *, available_now: bool) -> LocalStream:
        return LocalStream(self.site, beginning, batch)


class LocalStream:
    def __init__(self, site: Site, beginning: int, batch: Callable[[int, int, int], None]) -> None:
        self._site, self._batch = site, batch
        self.lsn = site.position or beginning
        self.running = True

    def wait(self, seconds: float) -> None:
        end = ChangeLog.open(self._site.config.log.path).last_end_lsn
        if end > self.lsn:
            self._batch(0, self.lsn, end)
            self.lsn = self._site.position = end
        else:
            self.running = False

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def site(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Site]:
    with opened(Site(server, tmp_path), server) as made:
        yield made


@pytest.fixture
def spark_site(server: EmbeddedPostgres, spark: SparkSession, tmp_path: Path) -> Iterator[Site]:
    with opened(SparkSite(server, tmp_path), server) as made:
        yield made


@pytest.fixture
def left_out(site: Site) -> Site:
    """public.a is left out from its first change on, for a date that the lake has no value for; public.b goes on."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, day date)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    site.sql("INSERT INTO a VALUES (0, 'infinity')")
    with pytest.raises(UnrepresentableError):
        site.run()
    return site


@contextmanager
def opened(site: Site, server: EmbeddedPostgres) -> Iterator[Site]:
    try:
        yield site
    finally:
        site.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{site.name}'")
        site.connection.close()
        server.psql(f"DROP DATABASE {site.name} WITH (FORCE)")
