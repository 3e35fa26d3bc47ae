"""Verify holds no lock while it waits: DDL goes on at once, and what was read before it is compared all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession

from tests.verify.lakes import INT32, STRING, Shop
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.writer import LogWriter
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify import VerifyReport, verify
from wal2lake.verify.comparison import Comparison
from wal2lake.verify.lake import LakeTable
from wal2lake.verify.table_comparison import SourceDigest, digest_source

pytestmark = [pytest.mark.server, pytest.mark.spark]

_SCHEMA = pa.schema({"id": INT32, "name": STRING})
_OTHER_LOCKS = """
SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation
 WHERE a.application_name = 'wal2lake verify' AND c.relnamespace = 'stalled'::regnamespace
"""


class Stalled(Shop):
    """A log that looks as if capture ran, and stands still until catch_up."""

    @property
    def status(self) -> Path:
        return Path(self.config.log.path) / "status" / "capture.json"

    def verify(
        self, spark: SparkSession, while_waiting: Callable[[], object], said: str = "change log"
    ) -> VerifyReport:
        """``while_waiting`` is called once, in the middle of the wait that says ``said``."""
        todo = [while_waiting]

        def say(text: str) -> None:
            if said in text and todo:
                todo.pop()()

        self.status.parent.mkdir(exist_ok=True)
        self.status.write_text("{}")
        report = verify(self.config, spark, range_rows=100, timeout_s=60, say=say)
        assert not todo
        return report

    def catch_up(self) -> None:
        log = ChangeLog.open(self.config.log.path)
        writer = LogWriter(Path(self.config.log.path), log.identity)
        writer.set_position(self.lsn())
        writer.close()

    def truncate(self) -> None:
        """At once or not at all."""
        assert self.connection.execute(_OTHER_LOCKS).fetchone() == (0,)
        self.sql("SET lock_timeout = '1s'")
        self.sql("TRUNCATE t")


@pytest.fixture
def shop(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Stalled]:
    shop = Stalled.open(server, "stalled", tmp_path)
    assert isinstance(shop, Stalled)
    shop.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
    shop.sql("INSERT INTO t SELECT n, 'name ' || n FROM generate_series(1, 1000) n")
    shop.land("t", _SCHEMA)
    yield shop
    shop.close()


def test_a_truncate_goes_on_while_verify_waits_and_verify_passes(shop: Stalled, spark: SparkSession) -> None:
    def truncate() -> None:
        shop.truncate()
        shop.catch_up()

    report = shop.verify(spark, truncate)
    assert report.ok and report.note is None
    assert [(table.rows_source, table.rows_lake) for table in report.tables] == [(1000, 1000)]


def test_a_difference_found_before_a_truncate_is_reported_as_coarse_as_it_is(
    shop: Stalled, spark: SparkSession
) -> None:
    def truncate() -> None:
        shop.truncate()
        shop.catch_up()

    shop.sabotage("t", _SCHEMA, lambda rows: rows.pop(500))
    report = shop.verify(spark, truncate)
    (bad,) = report.tables[0].bad_ranges
    assert (bad.rows_source - bad.rows_lake, bad.columns) == (1, ())
    assert bad.rows_source > 50
    assert report.note is not None and "stalled.t are as coarse" in report.note


def test_a_lake_that_gets_a_column_on_its_way_is_compared_with_it(shop: Stalled, spark: SparkSession) -> None:
    def evolve() -> None:
        stamp = CommitProperties({"wal2lake.lsn": str(lsn)})
        rows = pa.Table.from_pylist(shop.rows("t", wide), schema=wide)
        rows = rows.set_column(2, "colour", pa.array(["red"] * 999 + ["blue"]))
        write_deltalake(shop.uri("t"), rows, mode="overwrite", schema_mode="overwrite", commit_properties=stamp)
        shop.catch_up()

    wide = pa.schema([*_SCHEMA, pa.field("colour", STRING)])
    shop.sql("ALTER TABLE t ADD colour text NOT NULL DEFAULT 'red'")
    lsn = shop.lsn()
    (bad,) = shop.verify(spark, evolve).tables[0].bad_ranges
    assert bad.columns == ("colour",)


def test_what_ends_verify_ends_the_comparisons_under_way(
    shop: Stalled, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and errors alike: nobody waits for a table that is still being digested."""
    jobs = spark.sparkContext.statusTracker()

    def digests(_: LakeTable, comparison: Comparison, *__: Any) -> None:
        if comparison.table.name == "t":
            spark.range(10**15).selectExpr("max(xxhash64(id))").collect()
        eventually(jobs.getActiveJobsIds)
        raise KeyboardInterrupt

    shop.sql("CREATE TABLE u (id int PRIMARY KEY, name text)")
    shop.land("u", _SCHEMA)
    monkeypatch.setattr(LakeTable, "digests", digests)
    with pytest.raises(KeyboardInterrupt):
        verify(shop.config, spark)
    assert not jobs.getActiveJobsIds()


def test_a_lock_in_the_way_makes_it_try_again(
    shop: Stalled, spark: SparkSession, server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_first(*arguments: Any) -> SourceDigest:
        if not said:
            other.execute("LOCK TABLE stalled.t")
        return digest_source(*arguments)

    def say(text: str) -> None:
        said.append(text)
        other.rollback()

    said: list[str] = []
    monkeypatch.setattr("wal2lake.verify.source_snapshot.LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr("wal2lake.verify.run.digest_source", lock_first)
    with psycopg.connect(server.dsn) as other:
        assert verify(shop.config, spark, say=say).ok
    assert sum("taking another" in text for text in said) == 1


def test_a_table_truncated_under_every_snapshot_is_not_compared(
    shop: Stalled, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def truncate_first(*arguments: Any) -> SourceDigest:
        shop.sql("TRUNCATE t")
        return digest_source(*arguments)

    monkeypatch.setattr("wal2lake.verify.run.digest_source", truncate_first)
    (table,) = verify(shop.config, spark).tables
    assert (table.outcome, table.ok) == ("not compared", False)
    assert table.problem is not None and "during each of 5 snapshots" in table.problem
    assert ChangeLog.open(shop.config.log.path).barriers() == {}
