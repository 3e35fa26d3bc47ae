"""What the log knows is spread over its segments: a session of the stream begins with nothing, whatever came before."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark_source.conftest import LogScript
from tests.spark_source.test_typed import RULES, WIDE, columns, read, schema
from wal2lake.changelog.log import ChangeLog
from wal2lake.spark.typed import newest_schemas
from wal2lake.testing.stream import insert, relation, update

OTHER = 16390


@pytest.fixture
def restarted(log: LogScript) -> LogScript:
    """Two tables, then a session that speaks of the other one alone."""
    log.transactions([relation(), insert(1, "a")], [relation(OTHER, "u"), insert(1, "z", oid=OTHER)])
    log.transactions([insert(2, "b")])
    log.new_session()
    log.transactions([relation(OTHER, "u", ("id", "v", "w")), insert(2, "y", "x", oid=OTHER)])
    log.transactions([insert(3, "y", "x", oid=OTHER)])
    return log


@pytest.mark.spark
def test_a_table_of_an_earlier_session_in_spark(spark: SparkSession, restarted: LogScript) -> None:
    reader = spark.read.format("wal2lake").option("log", restarted.path)
    rows = reader.option("table", "public.t").load().orderBy("_lsn").collect()
    assert [(row["_op"], row["id"], row["v"]) for row in rows] == [("I", 1, "a"), ("I", 2, "b")]


def test_each_relation_is_known_as_it_was_last_announced(restarted: LogScript) -> None:
    log = ChangeLog.open(restarted.path)

    def known(end: int) -> dict[str, list[str]]:
        return {s.name: [c.name for c in s.columns] for s in newest_schemas(log, end, RULES)}

    assert known(restarted.ends[-1]) == {"t": ["id", "v"], "u": ["id", "v", "w"]}
    assert known(restarted.ends[2]) == {"t": ["id", "v"], "u": ["id", "v"]}
    assert known(restarted.ends[0]) == {"t": ["id", "v"]}
    assert known(restarted.start) == {}


def test_the_oldest_segment_of_a_trimmed_log_may_know_a_table(log: LogScript) -> None:
    """The Begin of its transaction is in a segment that is gone."""
    torn = log.stream.transaction(relation(), insert(1, "a"), insert(2, "b"))
    log.append(torn[:3])
    log.append(torn[3:] + log.stream.transaction(insert(3, "c")))
    end = int(log.stream.lsn)
    log.new_session()
    log.transactions([relation(OTHER, "u"), insert(1, "z", oid=OTHER)])
    found = ChangeLog.open(log.path)
    found.storage.remove(found.segments[0].name)
    found = ChangeLog.open(log.path)
    assert {s.name for s in newest_schemas(found, end, RULES)} == {"t"}
    assert {s.name for s in newest_schemas(found, log.ends[-1], RULES)} == {"t", "u"}


def test_a_table_made_anew_in_a_later_session_without_a_column(log: LogScript) -> None:
    log.transactions([WIDE, insert(1, "a", "x")])
    log.new_session()
    log.transactions([relation(20000), insert(2, "b", oid=20000)])
    assert columns(schema(log)) == ["id", "v"]
    assert [row["v"] for row in read(log, schema(log))] == ["a", "b"]
    log.transactions([update(2, "c", oid=20000)])
    assert len(read(log, schema(log))) == 3
