"""The data source's classes as Spark's processes use them, without a JVM."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from inspect import signature
from typing import cast

import pytest
from pyspark.sql.types import StructType

from pyspark_wal2lake import DefaultSource
from tests.spark_source.conftest import LogScript
from wal2lake.errors import ConfigError
from wal2lake.spark.compat import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from wal2lake.spark.source import LogPartition, StreamReader
from wal2lake.testing.stream import insert, relation


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def two(log: LogScript) -> LogScript:
    """Two transactions, of 4 and 3 messages."""
    log.transactions([relation(), insert(1, "a")], [insert(2, "b")])
    return log


def source(log: str, **options: str) -> DefaultSource:
    return DefaultSource({"log": log, **options})


def stream(log: LogScript, **options: str) -> StreamReader:
    made = source(log.path, **options)
    return made.streamReader(made.schema())


def test_making_the_classes_touches_nothing() -> None:
    made = source("/nowhere", table="a.b")
    made.reader(StructType())
    pickle.loads(pickle.dumps(made.streamReader(StructType())))
    with pytest.raises(ConfigError, match="no change log at /nowhere"):
        made.schema()


def test_a_reader_in_use_travels_without_its_log(two: LogScript) -> None:
    reader = stream(two, table="public.t")
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    (partition,) = pickle.loads(pickle.dumps(reader.partitions({"lsn": two.start}, {"lsn": two.ends[1]})))
    assert sum(batch.num_rows for batch in copy.read(partition)) == 2


def test_an_empty_range_has_no_partitions(two: LogScript) -> None:
    assert stream(two).partitions({"lsn": two.ends[0]}, {"lsn": two.ends[0]}) == []
    assert list(stream(two).read(cast(LogPartition, None))) == []


def test_the_options_are_the_default_limit(two: LogScript) -> None:
    assert stream(two).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(two, maxRowsPerTrigger="5").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(two, maxBytesPerTrigger="1k", maxRowsPerTrigger="5").getDefaultReadLimit() == ReadMaxBytes(1024)


def test_sparks_limit_counts_and_read_all_available_overrules_the_options(two: LogScript) -> None:
    reader, start = stream(two, maxBytesPerTrigger="1g", maxRowsPerTrigger="4"), {"lsn": two.start}
    assert reader.latestOffset(start, ReadMaxBytes(1 << 30)) == {"lsn": two.ends[0]}
    assert reader.latestOffset(start, ReadMaxRows(7)) == {"lsn": two.ends[1]}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"lsn": two.ends[1]}


def test_without_arguments_as_spark_4_0_calls_it(two: LogScript) -> None:
    reader = stream(two, maxRowsPerTrigger="4")
    assert reader.initialOffset() == {"lsn": two.start}
    assert reader.latestOffset() == {"lsn": two.ends[0]}
    assert len(signature(reader.latestOffset).parameters) == 2  # by which 4.2 knows that it may give a limit


def test_the_source_process_outlives_sigterm_so_that_stop_runs(two: LogScript) -> None:
    reader = stream(two)
    reader.initialOffset()
    signal.raise_signal(signal.SIGTERM)
    reader.stop()
