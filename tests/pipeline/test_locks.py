"""Somebody's lock on one table: the others go on as far as they can, and nobody waits for it deaf to a stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.pipeline.conftest import LocalEngine, Site
from tests.pipeline.test_several_snapshots import first_half_then_lost, make_table, move_rows
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import ConnectError, LockedError
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.loop import Pipeline
from wal2lake.tables import reread

pytestmark = [pytest.mark.server, pytest.mark.timeout(120)]


@contextmanager
def locked(site: Site, table: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(site.dsn) as connection:
        connection.execute(f"LOCK TABLE {table}".encode())
        yield connection


@pytest.fixture
def two(site: Site) -> Site:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    return site


@pytest.fixture
def with_a_new_one(site: Site) -> tuple[Site, Batches]:
    """public.b is in the lake, public.a was published and written to since the last look."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("b")
    site.run()
    batches = site.batches(ChangeLog.open(site.config.log.path))
    batches.discover(site.position)
    site.sql("ALTER PUBLICATION pub ADD TABLE a", "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)")
    return site, batches


def test_a_new_table_that_is_locked_is_read_later(with_a_new_one: tuple[Site, Batches]) -> None:
    site, batches = with_a_new_one
    with locked(site, "a"):
        site.apply(batches)
        site.same("public.b")
        with pytest.raises(LockedError):
            site.synchronize(batches)
    site.sql("DELETE FROM a", "INSERT INTO a VALUES (2)")
    site.apply(batches)
    site.synchronize(batches)
    site.same("public.a", "public.b")
    site.sql("UPDATE a SET id = 3")
    site.apply(batches)
    site.same("public.a")


def test_a_table_of_a_batch_that_is_locked_falls_behind_alone(two: Site) -> None:
    site = two
    site.sql("INSERT INTO a VALUES (1)", "ALTER TABLE a ADD x int DEFAULT 5", "INSERT INTO a VALUES (2)")
    site.sql("INSERT INTO b VALUES (1)")
    batches = site.batches(ChangeLog.open(site.config.log.path))
    with locked(site, "a"):
        site.apply(batches)
        site.same("public.b")
        with pytest.raises(LockedError):
            site.synchronize(batches)
    assert [str(table) for table in batches.tables.synchronizing()] == ["public.a"]
    site.sql("UPDATE a SET x = 6 WHERE id = 1", "INSERT INTO b VALUES (2)")
    site.apply(batches)
    site.synchronize(batches)
    site.same("public.a", "public.b")
    assert not ChangeLog.open(site.config.log.path).released()


def test_a_table_that_fell_behind_is_caught_up_by_the_next_run(two: Site) -> None:
    site = two
    site.sql("ALTER TABLE a ADD x int DEFAULT 5", "INSERT INTO a VALUES (2)")
    batches = site.batches(ChangeLog.open(site.config.log.path))
    with locked(site, "a"):
        site.apply(batches)
    site.run()
    site.same("public.a")


def test_rows_are_read_again_when_the_lock_is_gone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(site)
    with monkeypatch.context() as patch, pytest.raises(ConnectError):
        patch.setattr("tests.pipeline.conftest.LocalJobs.copy", first_half_then_lost)
        site.run()
    site.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_export_snapshot%'"
        " AND pid <> pg_backend_pid()"
    )
    move_rows(site)
    lock = psycopg.connect(site.dsn)

    def too_early(*arguments: Any) -> Any:
        lock.execute("LOCK TABLE t")
        return reread.read_again(*arguments)

    with monkeypatch.context() as patch, pytest.raises(LockedError):
        patch.setattr("wal2lake.pipeline.apply.read_again", too_early)
        site.run()
    lock.close()
    site.run()
    site.same("public.t")


def test_the_start_goes_on_without_a_table_that_is_locked(two: Site, caplog: pytest.LogCaptureFixture) -> None:
    site = two
    site.sql("INSERT INTO b VALUES (1)")
    site.capture()
    with locked(site, "a"):
        Pipeline(site.config, LocalEngine(site), site.stop).run()
        assert "Looking for new tables again later" in caplog.text
        site.same("public.b")
