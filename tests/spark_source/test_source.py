"""The data source in a real Spark, over a real log."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery
from pyspark.sql.types import TimestampNTZType, TimestampType

from tests.spark_source.conftest import LogScript, completed
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import PgoutputMessage, Relation, RelationColumn
from wal2lake.pgoutput.tuples import UNCHANGED
from wal2lake.spark.pipeline import SparkJobs
from wal2lake.spark.session import is_local
from wal2lake.spark.source import control_stream
from wal2lake.testing.stream import delete, insert, relation, update

pytestmark = pytest.mark.spark

OTHER = 16390
WIDE = relation(columns=("id", "v", "w"))


@pytest.fixture
def three(log: LogScript) -> LogScript:
    """Three transactions of 4 messages each, over two tables."""
    log.transactions([relation(), insert(1, "a")], [relation(OTHER, "u"), insert(9, "z", oid=OTHER)])
    log.transactions([update(1, UNCHANGED), delete(1, None)])
    return log


def reading(spark: SparkSession, log: LogScript, **options: str) -> DataStreamReader:
    return spark.readStream.format("wal2lake").option("log", log.path).options(**options)


def run_now(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Everything that there is, into ``folder``/out, with a checkpoint beside it."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return completed(lambda: writer.trigger(availableNow=True).start(str(folder / "out")))


def ids(spark: SparkSession, folder: Path) -> list[tuple[str, int]]:
    rows = spark.read.parquet(str(folder / "out")).orderBy("_lsn").collect()
    return [(row["_op"], row["id"]) for row in rows]


def test_spark_finds_the_format_by_itself(spark: SparkSession, three: LogScript) -> None:
    rows = spark.read.format("wal2lake").load(three.path).orderBy("seq", "relation_id").collect()
    found = [(row["table"], row["inserts"], row["updates"], row["deletes"]) for row in rows]
    assert found == [("t", 1, 0, 0), ("u", 1, 0, 0), ("t", 0, 1, 1)]


def test_a_batch_read_has_its_bounds(spark: SparkSession, three: LogScript) -> None:
    reader = spark.read.format("wal2lake").option("table", "public.t")
    assert reader.load(three.path).count() == 3
    bounded = reader.option("startingLsn", str(LSN(three.ends[0]))).option("endingLsn", str(LSN(three.ends[1])))
    assert bounded.load(three.path).collect() == []


def test_the_typed_stream_into_parquet(spark: SparkSession, three: LogScript, tmp_path: Path) -> None:
    run_now(reading(spark, three, table="public.t").load(), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("_lsn").collect()
    assert [(row["_op"], row["id"], row["v"]) for row in rows] == [("I", 1, "a"), ("U", 1, None), ("D", 1, None)]
    assert [(row["_unchanged"], row["_unpublished"]) for row in rows] == [([], []), (["v"], []), ([], ["v"])]
    assert [row["_commit_lsn"] for row in rows] == [three.ends[0], three.ends[2], three.ends[2]]
    run_now(reading(spark, three, table="public.u").load(), tmp_path / "other")
    assert ids(spark, tmp_path / "other") == [("I", 9)]


def test_types_are_sparks_own(spark: SparkSession, log: LogScript) -> None:
    columns = {"b": 16, "i": 23, "d": 1082, "ts": 1114, "tz": 1184, "raw": 17, "u": 2950}
    numeric = RelationColumn(0, "n", 1700, (12 << 16 | 2) + 4)
    described = (*(RelationColumn(int(name == "i"), name, oid, -1) for name, oid in columns.items()), numeric)
    log.transactions(
        [
            Relation(16384, "public", "t", "d", described),
            insert("t", 5, "2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29 12:00:00+00", "\\x00ff", "a" * 8, "1.50"),
        ]
    )
    frame = spark.read.format("wal2lake").option("table", "public.t").load(log.path)
    assert isinstance(frame.schema["ts"].dataType, TimestampNTZType)
    assert isinstance(frame.schema["tz"].dataType, TimestampType)
    shown = frame.selectExpr("b", "i", "string(d)", "string(ts)", "string(tz)", "hex(raw)", "string(n)").collect()
    assert shown == [Row(True, 5, "2024-02-29", "2024-02-29 12:00:00.5", "2024-02-29 12:00:00", "00FF", "1.50")]


def test_a_restart_goes_on_where_it_stopped(spark: SparkSession, three: LogScript, tmp_path: Path) -> None:
    run_now(reading(spark, three, table="public.t").load(), tmp_path)
    three.transactions([insert(2, "b")])
    query = run_now(reading(spark, three, table="public.t").load(), tmp_path)
    assert [p["numInputRows"] for p in query.recentProgress] == [1]
    assert ids(spark, tmp_path) == [("I", 1), ("U", 1), ("D", 1), ("I", 2)]


def test_available_now_keeps_the_limit_and_releases_the_log(
    spark: SparkSession, three: LogScript, tmp_path: Path
) -> None:
    query = run_now(reading(spark, three, maxRowsPerTrigger="4", consumer="bi").load(), tmp_path)
    ends = [_lsn(progress["sources"][0]["endOffset"]) for progress in query.recentProgress]
    assert ends == three.ends
    assert _lsn(query.recentProgress[0]["sources"][0]["latestOffset"]) == three.ends[-1]
    assert ChangeLog.open(three.path).released() == {"bi": three.ends[-1]}


def test_a_batch_that_fails_is_run_again_with_the_same_rows(
    spark: SparkSession, three: LogScript, tmp_path: Path
) -> None:
    seen: list[tuple[int, list[Row]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        seen.append((number, batch.collect()))
        if len(seen) == 1:
            raise RuntimeError("the sink fails after it has read the batch")

    def start() -> StreamingQuery:
        frame = reading(spark, three, table="public.t", maxRowsPerTrigger="8").load()
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        completed(start)
    three.transactions([insert(2, "b")])
    completed(start)
    assert seen[0] == seen[1]
    assert [number for number, _ in seen] == [0, 0, 1]


def test_a_restart_takes_up_an_added_column(spark: SparkSession, log: LogScript, tmp_path: Path) -> None:
    log.transactions([relation(), insert(1, "a")])
    narrow = reading(spark, log, table="public.t").load()
    run_now(narrow, tmp_path)
    log.transactions([WIDE, insert(2, "b", "c")])
    with pytest.raises(StreamingQueryException, match="Start the query again"):
        run_now(narrow, tmp_path)
    run_now(reading(spark, log, table="public.t").load(), tmp_path)
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out")).orderBy("_lsn").collect()
    assert [(row["id"], row["w"]) for row in rows] == [(1, None), (2, "c")]


def test_what_the_log_no_longer_holds_stops_the_query(spark: SparkSession, three: LogScript, tmp_path: Path) -> None:
    three.transactions([insert(3, "c")])
    log = ChangeLog.open(three.path)
    log.release("other", three.ends[-1])
    assert log.trim(retention_s=0) == 2
    with pytest.raises(StreamingQueryException, match="no longer holds"):
        run_now(reading(spark, three, startingLsn="0/1000").load(), tmp_path)
    assert spark.read.format("wal2lake").load(three.path).select("inserts").collect() == [Row(1)]


def test_many_segments_are_read_in_parallel_and_in_order(spark: SparkSession, log: LogScript) -> None:
    many: list[PgoutputMessage] = [insert(i, "x" * 10) for i in range(150_000)]
    log.transactions([relation(), *many])
    log.transactions(many)
    frame = spark.read.format("wal2lake").option("table", "public.t").load(log.path)
    assert frame.rdd.getNumPartitions() == 2
    found = frame.selectExpr("count(*) n", "sum(id) s", "count(distinct _commit_lsn) c").first()
    assert found == Row(300_000, 2 * sum(range(150_000)), 2)


def test_the_live_stream_follows_the_log_and_stops(spark: SparkSession, log: LogScript, tmp_path: Path) -> None:
    log.transactions([relation(), insert(1, "a")])
    config = Config.from_dict({"log": {"path": log.path}, "pipeline": {"name": "main"}})
    seen: list[Any] = []
    both = threading.Event()

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend((row["inserts"], row["end_lsn"]) for row in batch.collect())
        if len(seen) == 2:
            both.set()

    stream = control_stream(spark, config, log.start)
    query = stream.writeStream.foreachBatch(keep).trigger(processingTime="100 milliseconds")
    running = query.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        running.processAllAvailable()
        log.transactions([insert(2, "b"), insert(3, "c")])
        assert both.wait(60)
    finally:
        running.stop()
    assert seen == [(1, log.ends[0]), (2, log.ends[1])]
    assert ChangeLog.open(log.path).released()["main"] >= log.ends[0]


def _lsn(offset: Any) -> int:
    """Spark hands offsets over as JSON text or as what it parsed from it."""
    return int((json.loads(offset) if isinstance(offset, str) else offset)["lsn"])


def process_of(item: str) -> int:
    return os.getpid()


def test_one_item_needs_no_process_of_sparks_where_there_is_but_this_machine(spark: SparkSession) -> None:
    jobs, here = SparkJobs(spark), os.getpid()
    assert jobs.run(process_of, ["a"]) == [here]
    assert here not in jobs.run(process_of, ["a", "b"])
    assert here not in jobs.run(process_of, ["a"], "can be cancelled")
    assert jobs.run(process_of, ["a", "b"], small=True) == [here, here]
    assert not is_local("spark://host:7077")
