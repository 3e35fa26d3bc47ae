"""The managed pipeline: snapshot what is not in the lake yet, then follow the log batch by batch, all tables at once.

The rule: nothing is decided from memory. What is applied stands in the tables' commits, what is read in the log's
folder, how far the stream is in its checkpoint; so it may be killed anywhere and started again. Every table of a
batch ends at the same LSN. A table that cannot go on is quarantined, durably and with its reason; the others go on,
the log keeps what it will need (a consumer of its own), and each start tries it again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import InterruptedByUser, LockedError, Wal2LakeError
from wal2lake.spark.batches import Batches
from wal2lake.spark.checkpoint import committed_lsn, require_readable
from wal2lake.spark.failures import SparkLostError, spark_failure
from wal2lake.spark.progress import Progress
from wal2lake.spark.session import build_session, running_session
from wal2lake.spark.snapshot import Snapshots
from wal2lake.spark.source import control_stream
from wal2lake.spark.status import Ticker
from wal2lake.spark.tables import exclusive, snapshots_root
from wal2lake.spark.tablesync import TableSync
from wal2lake.spark.waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from wal2lake.config import Config

_POLL_S = 0.2
_STATUS_S = 1.0
_HOUSEKEEPING_S = 30.0  # new tables are looked for, old segments removed
_logger = logging.getLogger(__name__)


def run_pipeline(
    config: Config,
    stop: threading.Event | None = None,
    *,
    until: int | None = None,
    available_now: bool = False,
) -> None:
    """Run until ``stop`` is set, ``until`` (an LSN in bytes) is applied or, ``available_now``, the log as it is.

    Waits for capture to create the log. Needs the server for tables that are new and columns that change, not for what
    else the log has. Raises transient errors (ConnectError, SinkConflictError, SparkLostError)
    as they come, for the supervisor to start it again, and at the end the reason of a quarantined table.
    """
    Pipeline(config, stop or threading.Event()).run(until=until, available_now=available_now)


class Pipeline:
    """One run. ``stop`` ends it after the batch under way; a snapshot under way is left where it is."""

    def __init__(self, config: Config, stop: threading.Event) -> None:
        self._config = config
        self._stop = stop
        self._waiting, self._reading = Waiting(stop), Waiting(stop)
        self._progress = Progress(config, self._waiting, self._reading)
        self._turn = threading.Lock()  # held by a batch, a step of the table sync, or a look for new tables
        self._failure: BaseException | None = None
        self._snapshots: Snapshots | None = None
        self._streams = False

    def run(self, *, until: int | None = None, available_now: bool = False) -> None:
        """See run_pipeline."""
        try:
            log = self._await_log()
            alone, told = exclusive(self._config, self._stop), self._progress.last_word(self._stop)
            with alone, told, Ticker(self._tick, _STATUS_S), self._session() as spark:
                self._work(spark, log, until, available_now)
        except (InterruptedByUser, SparkLostError):
            if not self._stop.is_set():
                raise

    def _await_log(self) -> ChangeLog:
        path = self._config.log.path
        while not ChangeLog.exists(path):
            self._waiting.pause(f"Waiting for capture to create the change log at {path}.")
        log = ChangeLog.open(path)
        position = self._position(log)
        log.release(self._config.pipeline.name, position)  # before any snapshot: what comes after it must stay
        self._progress.open(position)
        return log

    def _position(self, log: ChangeLog) -> int:
        """How far the stream is: nobody asks for what is before it, and retention may have removed that."""
        return max(committed_lsn(self._checkpoint) or 0, log.beginning())

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        """A session of our own is stopped at the end, one that was there is left."""
        guest = running_session() is not None
        session = build_session(self._config)
        try:
            yield session
        finally:
            if not guest:
                session.stop()

    def _work(self, spark: SparkSession, log: ChangeLog, until: int | None, available_now: bool) -> None:
        self._waiting.go_on()
        require_readable(self._checkpoint, log.beginning())
        root = snapshots_root(self._config)
        snapshots = Snapshots(self._config, spark, root, log.start_lsn, self._reading)
        self._snapshots = snapshots
        self._batches = Batches(self._config, spark, log, snapshots)
        self._progress.follow(self._batches)
        while not self._look(self._position(log)) and not self._batches.lake_has_tables():
            self._waiting.pause("Waiting for other sessions' locks to see what is published.")
        self._waiting.go_on()
        sync = TableSync(self._batches, snapshots, self._turn, self._reading, lambda: self._progress.applied)
        query = self._start(spark, available_now)
        try:
            self._watch(query, sync, until)
        except InterruptedByUser:  # while tables were waited for that come in beside the stream
            if not self._stop.is_set():
                raise
        finally:
            self._end(query, sync)
        self._batches.require_all()

    @property
    def _checkpoint(self) -> Path:
        return Path(self._config.log.path) / "checkpoints" / self._config.pipeline.name

    def _start(self, spark: SparkSession, available_now: bool) -> StreamingQuery:
        writer = control_stream(spark, self._config).writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self._checkpoint)).queryName(self._config.pipeline.name)
        seconds = self._config.pipeline.trigger_seconds
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": f"{seconds} seconds"}
        query: StreamingQuery = writer.trigger(**trigger).start()
        self._streams = True
        return query

    def _batch(self, rows: DataFrame, number: int) -> None:
        """What foreachBatch calls, in a thread of its own."""
        with self._turn:
            try:
                if self._waiting.closed:
                    raise InterruptedByUser("The pipeline is ending.")
                control = [row.asDict() for row in rows.collect()]
                self._batches.apply(control)
                self._progress.status.batch = number
                if control:
                    self._progress.advance(control[0]["end_lsn"])
            except BaseException as error:
                self._failure = self._failure or error
                raise

    def _watch(self, query: StreamingQuery, sync: TableSync, until: int | None) -> None:
        looked = time.monotonic()
        log = ChangeLog.open(self._config.log.path)  # this thread's own
        while query.isActive and not self._stop.is_set():
            self._wait(query)
            synchronized = not sync.tick()
            self._progress.advance(progress_lsn(query))
            if until is not None and synchronized and self._progress.reached(until):
                break
            if time.monotonic() - looked >= _HOUSEKEEPING_S:
                with self._turn:
                    self._look(self._progress.applied)
                    self._trim(log)
                looked = time.monotonic()
        self._wait(query)
        if not self._stop.is_set():
            sync.finish()  # the log as it is, for all tables
        with self._turn:
            self._trim(log)  # a run of few seconds had no other turn

    def _trim(self, log: ChangeLog) -> None:
        log.refresh()
        log.trim(self._config.log.retention_seconds)

    def _look(self, end: int) -> bool:
        """Look for new tables between batches, the stream standing at ``end``; False when that must be done again.

        A server that is away, or a lock, stops nothing: the log is enough to go on with what is in the lake.
        """
        try:
            self._batches.look(end, beside=self._streams)
        except Wal2LakeError as error:
            passing = isinstance(error, LockedError) or self._batches.lake_has_tables()
            if not error.transient or not passing:
                raise
            _logger.warning("Looking for new tables again later: %s", error)
            return False
        return True

    def _wait(self, query: StreamingQuery) -> None:
        """A little, or until the query ends; raises why it failed."""
        try:
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type] # any number does
        except (PySparkException, Py4JError) as error:
            raise (self._failure or spark_failure(error)) from error

    def _end(self, query: StreamingQuery, sync: TableSync) -> None:
        """Let the batch under way end, then the query. Without the turn a stop could leave a batch's thread waiting."""
        self._waiting.close()
        sync.end()
        with self._turn:
            pass
        query.stop()

    def _tick(self) -> None:
        """Publish the status; a stop amid a snapshot cancels its job: what is read by then stays read."""
        copying = self._snapshots is not None and self._snapshots.copying
        if self._snapshots is not None and self._stop.is_set():
            self._snapshots.cancel()
        self._progress.write(copying and not self._streams)


def progress_lsn(query: StreamingQuery) -> int:
    """The end of the query's last batch, which may have held no change of any table; 0 before the first."""
    progress = query.lastProgress
    offset = progress["sources"][0]["endOffset"] if progress is not None else None
    return int(json.loads(offset)["lsn"]) if offset else 0
