"""The snapshot's LSN is exact, and what a TRUNCATE or a rewrite took from it is noticed, not reported as a loss."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.verify.lakes import Shop
from tests.waiting import eventually
from wal2lake.errors import VerifyError, Wal2LakeError
from wal2lake.postgres.catalog import PublishedTable
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.verify.source_snapshot import SourceSnapshot, TableMovedError, source_snapshot

pytestmark = pytest.mark.server


@pytest.fixture
def shop(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop.open(server, "moment", tmp_path)
    shop.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    shop.sql("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    shop.sql("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9)")
    yield shop
    shop.close()


@pytest.fixture
def snapshot(shop: Shop) -> Iterator[SourceSnapshot]:
    with source_snapshot(shop.config.source.dsn) as snapshot:
        yield snapshot


def _table(snapshot: SourceSnapshot, name: str = "t") -> PublishedTable:
    return next(table for table in snapshot.published("moment") if table.name == name)


def _count(snapshot: SourceSnapshot, table: PublishedTable) -> int:
    with snapshot.reading(table) as connection:
        row = connection.execute("SELECT count(*) FROM moment.t").fetchone()
    assert row is not None
    return int(row[0])


def test_just_what_commits_before_the_lsn_is_seen(shop: Shop) -> None:
    before = shop.lsn()
    with source_snapshot(shop.config.source.dsn) as snapshot:
        assert before < snapshot.lsn <= shop.lsn()
        shop.sql("INSERT INTO t VALUES (2)")
        assert _count(snapshot, _table(snapshot)) == _count(snapshot, _table(snapshot)) == 1
        assert [table.name for table in snapshot.published("moment")] == ["part", "t"]


def test_the_slot_does_not_outlive_the_taking(shop: Shop, snapshot: SourceSnapshot) -> None:
    slots = "SELECT 1 FROM pg_replication_slots WHERE slot_name ~ 'wal2lake_verify'"
    eventually(lambda: not shop.connection.execute(slots).fetchone())  # the server tidies up when its session is closed
    assert _count(snapshot, _table(snapshot)) == 1


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("t", "TRUNCATE t"),
        ("t", "ALTER TABLE t ALTER id TYPE bigint"),
        ("t", "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int PRIMARY KEY)"),
        ("t", "DROP TABLE t"),
        ("part", "TRUNCATE parts"),
    ],
)
def test_a_table_that_ddl_was_faster_with_cannot_be_read(
    shop: Shop, snapshot: SourceSnapshot, name: str, query: str
) -> None:
    table = _table(snapshot, name)
    shop.sql(query)
    with pytest.raises(TableMovedError, match=f"moment.{name}"), snapshot.reading(table):
        pass


def test_a_column_dropped_since_the_snapshot_is_noticed(shop: Shop, snapshot: SourceSnapshot) -> None:
    table = _table(snapshot)
    shop.sql("ALTER TABLE t ADD note text; ALTER TABLE t DROP COLUMN id")
    with pytest.raises(TableMovedError), snapshot.reading(table) as connection:
        connection.execute("SELECT id FROM moment.t")


def test_a_partition_truncated_spoils_the_root(shop: Shop) -> None:
    shop.sql("CREATE PUBLICATION roots FOR TABLE parts WITH (publish_via_partition_root)")
    try:
        with source_snapshot(shop.config.source.dsn) as snapshot:
            (root,) = snapshot.published("roots")
            with snapshot.reading(root):
                pass
            shop.sql("TRUNCATE part")
            with pytest.raises(TableMovedError), snapshot.reading(root):
                pass
    finally:
        shop.sql("DROP PUBLICATION roots")


def test_a_table_cannot_be_truncated_while_it_is_read_and_can_right_after(shop: Shop, snapshot: SourceSnapshot) -> None:
    with snapshot.reading(_table(snapshot)), pytest.raises(psycopg.errors.LockNotAvailable):
        shop.sql("SET lock_timeout = '50ms'; TRUNCATE t")
    shop.sql("TRUNCATE t")


def test_a_locked_table_is_left_before_long(
    shop: Shop, snapshot: SourceSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wal2lake.verify.source_snapshot.LOCK_TIMEOUT_MS", 50)
    table = _table(snapshot)
    with shop.connection.transaction():
        shop.sql("LOCK TABLE t")
        with pytest.raises(TableMovedError), snapshot.reading(table):
            pass
        with pytest.raises(TableMovedError):
            snapshot.published("moment")
    assert _count(snapshot, table) == 1


def test_what_is_being_read_can_be_given_up(shop: Shop, snapshot: SourceSnapshot) -> None:
    def sleep(table: PublishedTable) -> None:
        with snapshot.reading(table) as connection:
            reading.set()
            connection.execute("SELECT pg_sleep(600)")

    table, reading = _table(snapshot), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        sleeper = pool.submit(sleep, table)
        assert reading.wait(60)
        sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        eventually(lambda: shop.connection.execute(sleeps).fetchone())
        snapshot.cancel()
        assert isinstance(sleeper.exception(), Wal2LakeError)
    with pytest.raises(VerifyError), snapshot.reading(table):
        pass
