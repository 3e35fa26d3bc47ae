"""The pipeline on Spark: its jobs are Spark's, and a streaming query says where its batches end.

The query computes no row: what a batch holds is planned from the log's index by the driver. What it gives is what
Spark's users know: offsets, a checkpoint, triggers, and its place in Spark's UI.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.places import checkpoint
from wal2lake.errors import Wal2LakeError
from wal2lake.pipeline.engine import Batch, Item, Result
from wal2lake.pipeline.loop import Pipeline
from wal2lake.spark.checkpoint import batch_bounds, committed_lsn, require_readable
from wal2lake.spark.jobs import attempt, run_tasks, spark_lost
from wal2lake.spark.session import build_session, is_local, running_session
from wal2lake.spark.source import control_stream
from wal2lake.urls import is_object_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wal2lake.config import Config

_THREADS: Final = 4  # of the driver: half of what a small task does is waiting for a disk


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
    Pipeline(config, SparkEngine(config), stop or threading.Event()).run(until=until, available_now=available_now)


class SparkEngine:
    """An ``Engine``. A session of our own is stopped at the end, one that was there is left.

    Of a log in an object store, to which Spark could write no checkpoint, the one on this machine lasts as long as the
    engine: another machine may have gone on meanwhile. The stream begins where the log says that the pipeline is
    (``ChangeLog.release``), before which all is applied.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lasts = not is_object_url(config.log.path)
        self._since = 0
        self._checkpoint = checkpoint(config.log.folder, config.pipeline.name)
        self._guest = False
        self._spark: SparkSession | None = None

    def committed_lsn(self) -> int | None:
        if self._lasts:
            return committed_lsn(self._checkpoint)
        return ChangeLog.open(self._config.log.path).released_by(self._config.pipeline.name)

    def __enter__(self) -> SparkJobs:
        if self._lasts:
            require_readable(self._checkpoint, ChangeLog.open(self._config.log.path).beginning())
        else:
            self._since = self.committed_lsn() or 0
            if self._checkpoint.exists():
                shutil.rmtree(self._checkpoint)
        self._guest = running_session() is not None
        self._spark = build_session(self._config)
        return SparkJobs(self._spark)

    def __exit__(self, *failure: object) -> None:
        if self._spark is not None and not self._guest:
            self._spark.stop()

    def stream(self, beginning: int, batch: Batch, *, available_now: bool) -> SparkStream:
        assert self._spark is not None
        beginning = max(beginning, self._since)

        def each(_: DataFrame, number: int) -> None:
            batch(number, *batch_bounds(self._checkpoint, number, beginning))

        # as fast as it can: it is the source that knows when there is something, and when a batch may begin
        trigger: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        try:
            writer = control_stream(self._spark, self._config, beginning).writeStream.foreachBatch(each)
            writer = writer.option("checkpointLocation", str(self._checkpoint)).queryName(self._config.pipeline.name)
            return SparkStream(writer.trigger(**trigger).start())
        except (PySparkException, Py4JError) as error:
            raise spark_lost(error) from error


class SparkJobs:
    """``Jobs`` of a session; small ones are done by threads of this process, which need no job of Spark's. Nor does a
    single item where Spark is on this machine alone: a process of Spark's would do the same, once it has started."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._local = is_local(str(spark.sparkContext.master))
        self.parallelism = spark.sparkContext.defaultParallelism
        self._threads = ThreadPoolExecutor(_THREADS, "wal2lake task")

    def run(
        self, task: Callable[[Item], Result], items: Sequence[Item], tag: str = "", *, small: bool = False
    ) -> list[Result | Wal2LakeError]:
        if small or (self._local and len(items) == 1 and not tag):
            results = list(self._threads.map(partial(attempt, task), items))
            if not small:
                pa.default_memory_pool().release_unused()  # this process stays, where Spark's would end
            return results
        if not tag:
            return run_tasks(self._spark, task, items)
        try:
            with _suppressing_jvm_loss():
                self._spark.sparkContext.addJobTag(tag)
            return run_tasks(self._spark, task, items)
        finally:
            with _suppressing_jvm_loss():
                self._spark.sparkContext.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        with _suppressing_jvm_loss():
            self._spark.sparkContext.cancelJobsWithTag(tag)


class SparkStream:
    """A ``Stream``: a streaming query. Java is asked once, by a thread that waits for its end: to ask whether it runs
    a few times a second was most of what an idle pipeline cost."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._ended = threading.Event()
        self._failure: Exception | None = None
        threading.Thread(target=self._await_end, name="wal2lake stream end", daemon=True).start()

    def _await_end(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - raised again where the stream is waited for
            self._failure = error
        finally:
            self._ended.set()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def wait(self, seconds: float) -> None:
        if self._ended.wait(seconds) and self._failure is not None:
            raise spark_lost(self._failure) from self._failure

    def stop(self) -> None:
        self._query.stop()


def _suppressing_jvm_loss() -> suppress:
    """A JVM that is gone is noticed by whatever it was to do; a tag of its jobs matters no more."""
    return suppress(PySparkException, Py4JError, OSError)
