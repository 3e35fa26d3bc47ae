"""A table that is new comes in beside the stream: no other table waits, and whoever dies in between is continued."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.pipeline.conftest import Site, run_here
from tests.pipeline.test_killed import capturing
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LockedError, SchemaChangeError, UnrepresentableError
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.snapshots import Pace
from wal2lake.sinks.base import SinkUnavailableError
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.tables.landing import land_snapshot

pytestmark = pytest.mark.server


class DiedError(KeyboardInterrupt):
    """Nothing of ours is in its way, as nothing is in SIGKILL's."""


def die(*_: object, **__: object) -> None:
    raise DiedError


def die_after_half(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    run_here(spark, task, items[: max(1, len(items) // 2)])
    raise DiedError


@pytest.fixture(params=["PRIMARY KEY", ""], ids=["key", "no key"])
def new_table(site: Site, request: pytest.FixtureRequest) -> Site:
    """public.b is in the lake; public.a, of many chunks, was published since."""
    site.configure_pipeline(snapshot_chunk_bytes=8192)
    site.sql(
        f"CREATE TABLE public.a (id int {request.param}, n int, pad text) WITH (autovacuum_enabled = off)",
        "ALTER TABLE a REPLICA IDENTITY FULL",
        "INSERT INTO a SELECT i, 0, repeat('x', 400) FROM generate_series(1, 100) i",
        "CREATE TABLE public.b (id int PRIMARY KEY)",
    )
    site.publish("b")
    site.run()
    site.sql("ALTER PUBLICATION pub ADD TABLE a")
    return site


def opened(site: Site) -> Batches:
    """What a new process knows, where the stream stands."""
    batches = site.batches(ChangeLog.open(site.config.log.path))
    batches.discover(site.position)
    return batches


def goes_on(site: Site, batches: Batches, number: int) -> None:
    """Both tables change, the stream goes past it, and what nobody needs any more is removed from the log."""
    site.sql(
        f"UPDATE a SET n = n + 1 WHERE id % 7 = {number}",
        f"DELETE FROM a WHERE id = {number + 20}",
        f"INSERT INTO a VALUES ({number + 1000}, 0, 'new')",
        f"UPDATE a SET n = -1 WHERE id = {number + 999}",
        f"INSERT INTO b VALUES ({number})",
    )
    site.apply(batches)
    site.same("public.b")
    log = ChangeLog.open(site.config.log.path)
    log.release(site.config.pipeline.name, site.position)
    log.trim(0)


def segments(site: Site) -> int:
    return len(ChangeLog.open(site.config.log.path).segments)


DEATHS = {
    "before it is read": ("wal2lake.pipeline.snapshots.Snapshots.read", die),
    "half read": ("tests.pipeline.conftest.LocalJobs.copy", die_after_half),
    "read, not in the lake": ("wal2lake.pipeline.snapshots.Snapshots.land", die),
    "in the lake": ("wal2lake.tables.table.Table.land", die),
    "done": ("wal2lake.pipeline.batches.Batches.catch_up", die),
    "applied, not marked": ("wal2lake.tables.table.Table.become_ready", die),
}


@pytest.mark.parametrize("death", DEATHS)
def test_whoever_dies_is_continued(new_table: Site, death: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = new_table
    batches = opened(site)
    goes_on(site, batches, 1)
    with monkeypatch.context() as patch, pytest.raises(DiedError):
        patch.setattr(*DEATHS[death])
        site.synchronize(batches)
    batches = opened(site)
    goes_on(site, batches, 2)
    goes_on(site, batches, 3)
    site.synchronize(batches)
    site.same("public.a", "public.b")
    goes_on(site, batches, 4)
    site.same("public.a")
    assert list(ChangeLog.open(site.config.log.path).released()) == [site.config.pipeline.name]
    assert segments(site) == 1


def test_what_was_missed_is_applied_in_steps_between_which_the_stream_goes_on(
    new_table: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_table
    batches = opened(site)
    for number in range(1, 6):
        goes_on(site, batches, number)
    assert segments(site) >= 5, "the log keeps what the table will need"
    site.configure_pipeline(max_bytes_per_trigger=200)
    batches.config = site.config
    steps: list[int] = []

    def step(self: Batches, table: Any, end: int) -> bool:
        if len(steps) == 3:
            goes_on(site, batches, 6)
        steps.append(end)
        return original(self, table, end)

    original = Batches.catch_up
    monkeypatch.setattr(Batches, "catch_up", step)
    site.synchronize(batches)
    assert len(set(steps)) == 2
    assert len(steps) > 5
    site.same("public.a", "public.b")


def test_a_table_that_the_log_brings_before_it_was_looked_for(new_table: Site) -> None:
    site = new_table
    site.sql("ALTER PUBLICATION pub DROP TABLE a")
    batches = opened(site)
    site.sql("ALTER PUBLICATION pub ADD TABLE a")
    goes_on(site, batches, 1)
    assert [str(table) for table in batches.tables.synchronizing()] == ["public.a"]
    goes_on(site, batches, 2)
    site.synchronize(batches)
    site.same("public.a")


def test_a_table_that_is_not_published_any_more_keeps_nothing(new_table: Site) -> None:
    site = new_table
    batches = opened(site)
    site.sql("ALTER PUBLICATION pub DROP TABLE a")
    goes_on(site, batches, 1)
    site.synchronize(batches)
    assert not batches.tables.synchronizing()
    goes_on(site, batches, 2)
    assert segments(site) == 1
    batches.require_none_quarantined()


def test_what_cannot_be_followed_leaves_the_table_out_from_there(new_table: Site) -> None:
    site = new_table
    batches = opened(site)
    table = batches.tables.of("public", "a")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(DiedError):
        patch.setattr(Batches, "catch_up", die)
        site.synchronize(batches)
    goes_on(site, batches, 1)
    site.sql("ALTER TABLE a RENAME n TO m", "INSERT INTO a VALUES (5000, 1, 'x')")
    site.apply(batches)
    site.synchronize(batches)
    assert not table.synchronizing
    with pytest.raises(SchemaChangeError, match="renamed"):
        batches.require_none_quarantined()
    batches = opened(site)
    site.synchronize(batches)
    with pytest.raises(SchemaChangeError, match="renamed"):
        batches.require_none_quarantined()


def test_what_was_read_of_a_table_that_fails_is_void(new_table: Site) -> None:
    """The stream has passed its changes, and nothing keeps them: a table that is left out is read anew."""
    site = new_table
    site.sql("ALTER TABLE a ADD day date", "UPDATE a SET day = 'infinity' WHERE id = 100")
    batches = opened(site)
    site.synchronize(batches)
    with pytest.raises(UnrepresentableError):
        batches.require_none_quarantined()
    goes_on(site, batches, 1)
    site.sql("UPDATE a SET day = NULL")
    site.apply(batches)
    site.run()
    site.same("public.a", "public.b")


def test_a_lock_on_the_table_that_is_read_is_not_waited_for(new_table: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches need the core."""
    site = new_table
    batches = opened(site)
    monkeypatch.setattr("wal2lake.pipeline.tablesync.BESIDE_STREAM", Pace(spare_cores=1, lock_timeout_s=1))
    monkeypatch.setattr("wal2lake.pipeline.snapshots.WAVE_TASKS", 1)
    lock = psycopg.connect(site.dsn)
    waves: list[int] = []

    def locked(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        waves.append(len(items))
        if len(waves) == 2:
            lock.execute("LOCK TABLE a")
        return run_here(spark, task, items)

    monkeypatch.setattr("tests.pipeline.conftest.LocalJobs.copy", locked)
    with pytest.raises(LockedError):
        site.synchronize(batches)
    assert waves == [1, 1], "one core is left to the batches, and no wave follows one that met the lock"
    lock.close()
    goes_on(site, batches, 1)
    site.synchronize(batches)
    site.same("public.a", "public.b")


@pytest.fixture
def two_new(new_table: Site) -> Site:
    """public.c is new as well."""
    site = new_table
    site.sql("CREATE TABLE public.c (id int PRIMARY KEY)", "INSERT INTO c VALUES (1)")
    site.sql("ALTER PUBLICATION pub ADD TABLE c")
    return site


def test_a_table_that_landed_before_another_failed_is_kept(two_new: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = two_new
    batches = opened(site)
    goes_on(site, batches, 1)

    def fail(table: Any, published: Any, lsn: int) -> None:
        if published.name == "c":
            raise SinkUnavailableError("Away.")
        land_snapshot(table, published, lsn)

    with monkeypatch.context() as patch, pytest.raises(SinkUnavailableError):
        patch.setattr("wal2lake.pipeline.snapshots.land_snapshot", fail)
        site.synchronize(batches)
    site.sql("ALTER PUBLICATION pub DROP TABLE a")
    site.synchronize(batches)
    site.same("public.a", "public.b", "public.c")


def test_one_tables_passing_trouble_keeps_no_other(two_new: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = two_new
    batches = opened(site)
    original = Batches.catch_up

    def fail(self: Batches, table: Any, end: int) -> bool:
        if str(table) == "public.a":
            raise LockedError("Somebody's ALTER.")
        return original(self, table, end)

    with monkeypatch.context() as patch, pytest.raises(LockedError):
        patch.setattr(Batches, "catch_up", fail)
        site.synchronize(batches)
    assert [str(table) for table in batches.tables.synchronizing()] == ["public.a"]
    site.same("public.c")
    site.synchronize(batches)
    site.same("public.a")


def state(site: Site, table: str) -> str:
    return str(site.status().get("tables", {}).get(table, {}).get("state", ""))


@pytest.mark.spark
def test_other_tables_go_on_while_one_cannot_be_read_yet(spark_site: Site) -> None:
    """A transaction that writes keeps its snapshot waiting; the stream brings its changes before it is looked for."""
    site = spark_site
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, n int)", "INSERT INTO a VALUES (1, 0), (2, 0)")
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)", "CREATE TABLE public.unpublished (id int)")
    site.sql("CREATE PUBLICATION pub FOR TABLE b")
    stop = threading.Event()
    pipeline = threading.Thread(target=run_pipeline, args=(site.config, stop))
    wait = partial(eventually, alive=pipeline.is_alive, timeout_s=120)
    with capturing(site), psycopg.connect(site.dsn) as writer:
        pipeline.start()
        try:
            wait(lambda: state(site, "public.b") == "streaming")
            writer.execute("INSERT INTO unpublished VALUES (1)")
            site.sql("ALTER PUBLICATION pub ADD TABLE a", "UPDATE a SET n = 1 WHERE id = 1")
            wait(lambda: state(site, "public.a") == "snapshot")
            site.sql("INSERT INTO b VALUES (1)", "DELETE FROM a WHERE id = 2")
            wait(lambda: len(site.lake("public.b")) == 1)
            wait(lambda: "transaction(s) that write" in (site.status()["waiting_for"] or ""))
            assert site.status()["state"] == "streaming"
            writer.commit()
            wait(lambda: state(site, "public.a") == "streaming")
            site.same("public.a", "public.b")
        finally:
            stop.set()
            pipeline.join(60)
    assert not pipeline.is_alive()
