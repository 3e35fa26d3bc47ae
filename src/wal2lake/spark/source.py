"""The Spark data source ``wal2lake``: pyspark's classes over plain functions, and nothing else.

An instance is made in several processes and pickled to executors, so making one has no effect; the log is opened by
the first call that needs it, and never travels. Spark calls the stream reader in one long-lived process per query,
and ``read`` in its Python workers.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wal2lake.changelog.log import ChangeLog
from wal2lake.lsn import LSN
from wal2lake.pipeline.control import CONTROL_SCHEMA, read_control
from wal2lake.spark import register
from wal2lake.spark.compat import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
    spark_schema,
)
from wal2lake.spark.decoded import decoded_schema, plan_decoded, read_decoded
from wal2lake.spark.offsets import Offset, Offsets
from wal2lake.spark.options import SourceOptions
from wal2lake.spark.typed import ExtentGroup, plan_typed, read_typed, typed_schema
from wal2lake.tables.committed import open_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wal2lake.config import Config

FORMAT = "wal2lake"


class DefaultSource(DataSource):
    """``spark.read`` and ``spark.readStream`` ``.format("wal2lake")``; see ``options`` for what it takes."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """CONTROL_SCHEMA without a table; with one, the envelope and the table's columns as last announced. What an
        output plugin writes is (lsn, xid, data)."""
        options = SourceOptions.parse(self.options)
        if options.plugin is not None:
            return spark_schema(decoded_schema(options))
        if options.table is None:
            return spark_schema(CONTROL_SCHEMA)
        return spark_schema(typed_schema(open_log(options.log), options.table, options.ending_lsn, options.rules))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(SourceOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(SourceOptions.parse(self.options), schema)


@dataclass
class LogPartition(InputPartition):
    """A part of the range (start, end]: the given extents of one table, or all of the range's control rows, or what a
    plugin writes about it."""

    start: int
    end: int
    extents: ExtentGroup = ()


class _LogReader:
    """What batch and stream reads share: planning a range and reading a part of it."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def _plan(self, start: int, end: int) -> list[InputPartition]:
        if start >= end:
            return []
        if self._options.plugin is not None:
            return [LogPartition(*span) for span in plan_decoded(open_log(self._options.log), start, end)]
        if self._options.table is None:
            return [LogPartition(start, end)]
        groups = plan_typed(open_log(self._options.log), self._options.table, start, end)
        return [LogPartition(start, end, group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):  # Spark's stand-in for "no partitions"
            return iter(())
        log, table, span = self._options.log, self._options.table, (partition.start, partition.end)
        if self._options.plugin is not None:
            return read_decoded(self._options, *span)
        if table is None:
            return read_control(log, *span, self._options.rules)
        return read_typed(log, table, partition.extents, span, arrow_schema(self._schema), self._options.rules)


class BatchReader(_LogReader, DataSourceReader):
    """``spark.read``: the range (startingLsn, endingLsn], by default all that the log has."""

    def partitions(self) -> Sequence[InputPartition]:
        log = open_log(self._options.log)
        start, end = self._options.starting_lsn, self._options.ending_lsn
        return self._plan(
            log.beginning() if start is None else int(start),
            int(log.last_end_lsn if end is None else min(end, log.last_end_lsn)),
        )


class StreamReader(_LogReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``; the decisions are ``Offsets``'s."""

    _opened: Offsets | None = None

    def initialOffset(self) -> Offset:
        return self._offsets().initial()

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Spark 4.2 says where the batch starts and how large it may be; 4.0 and 4.1 call it without arguments."""
        max_bytes, max_rows = self._options.max_bytes, self._options.max_rows
        # Spark passes on one of the two options; the other holds as well, unless it asks for all
        if isinstance(limit, ReadAllAvailable):
            max_bytes = max_rows = None
        elif isinstance(limit, ReadMaxBytes):
            max_bytes = limit.max_bytes
        elif isinstance(limit, ReadMaxRows):
            max_rows = limit.max_rows
        return self._offsets().latest(start, max_bytes, max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        return self._offsets().newest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets().stop_at_newest()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._offsets().planned(end)
        return self._plan(start["lsn"], end["lsn"])

    def commit(self, end: Offset) -> None:
        self._offsets().committed(end)

    def stop(self) -> None:
        self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}

    def _offsets(self) -> Offsets:
        if self._opened is None:
            _ignore_sigterm()
            self._opened = Offsets(ChangeLog.open(self._options.log), self._options)
        return self._opened


def _ignore_sigterm() -> None:
    """Spark ends a query with SIGTERM and a closed socket; ignoring the first lets the second run ``stop()``."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)


def control_stream(spark: SparkSession, config: Config, beginning: int) -> DataFrame:
    """The managed pipeline's stream: all tables' control rows; it holds back retention under the pipeline's name.

    Without a checkpoint it starts at ``beginning`` (an LSN in bytes).
    """
    register(spark)
    return (
        spark.readStream.format(FORMAT)
        .option("log", config.log.path)
        .option("maxBytesPerTrigger", str(config.pipeline.max_bytes_per_trigger))
        .option("startingLsn", str(LSN(beginning)))
        .option("consumer", config.pipeline.name)
        .option("triggerSeconds", f"{config.pipeline.trigger_seconds:f}")
        .load()
    )
