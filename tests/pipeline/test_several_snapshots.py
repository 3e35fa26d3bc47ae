"""A keeper that dies amid a snapshot: chunks of two snapshots become one exact table, though rows moved in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import Site, run_here
from tests.pipeline.test_mirror import long_text
from tests.waiting import eventually
from wal2lake.errors import ConnectError
from wal2lake.tables import reread

pytestmark = pytest.mark.server

# VACUUM frees no room while the old keeper's session still stands.
OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def first_half_then_lost(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The keeper's session ends when half of the chunks are read."""
    run_here(spark, task, items[: len(items) // 2])
    raise ConnectError("The keeper is gone.")


def last_half_then_lost(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    run_here(spark, task, items[len(items) // 2 :])
    raise ConnectError("The keeper is gone.")


@pytest.fixture
def lose_keeper(monkeypatch: pytest.MonkeyPatch, site: Site) -> Callable[[Any], None]:
    def lose(run: Any) -> None:
        with monkeypatch.context() as patch, pytest.raises(ConnectError):
            patch.setattr("tests.pipeline.conftest.LocalJobs.copy", run)
            site.run()
        eventually(lambda: site.connection.execute(OTHERS).fetchone() == (0,))

    return lose


def make_table(site: Site, identity: str = "DEFAULT") -> None:
    """About 35 rows a block and a chunk, full but for the last, a TOASTed value in each row."""
    site.configure_pipeline(snapshot_chunk_bytes=8192)
    site.sql(
        "CREATE TABLE public.t (id int PRIMARY KEY, n int, pad text, big text) WITH (autovacuum_enabled = off)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        f"INSERT INTO t SELECT i, 0, repeat('x', 200), {long_text('i.i')} FROM generate_series(1, 140) i (i)",
    )
    site.publish("t")


def move_rows(site: Site) -> None:
    """Late rows move to early blocks: those are the only ones with room. Some then change, or go."""
    site.sql("DELETE FROM t WHERE id <= 70 AND id % 7 <> 0", "VACUUM t")
    before = blocks(site)
    site.sql("UPDATE t SET n = n + 1 WHERE id BETWEEN 90 AND 139")
    after = blocks(site)
    assert any(after[row] < 2 <= before[row] for row in before), "rows moved into early blocks"
    site.sql(
        "UPDATE t SET id = id + 1000 WHERE id BETWEEN 110 AND 115",
        "UPDATE t SET id = id + 1000 WHERE id BETWEEN 1112 AND 1113",
        f"UPDATE t SET big = {long_text('5')} WHERE id = 95",
        "DELETE FROM t WHERE id IN (98, 99)",
        "INSERT INTO t SELECT 98, 8, 'again', 'short'",
    )


def blocks(site: Site) -> dict[int, int]:
    rows = site.connection.execute("SELECT id, (ctid::text::point)[0]::int FROM t").fetchall()
    return dict(rows)


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were asked of the source again, each time."""
    asked: list[int] = []

    def spy(keys: Any, *arguments: Any) -> Any:
        asked.append(keys.num_rows)
        return reread.read_again(keys, *arguments)

    monkeypatch.setattr("wal2lake.pipeline.apply.read_again", spy)
    return asked


@pytest.mark.parametrize("half", [first_half_then_lost, last_half_then_lost])
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("part_rows", [1, 1000])
def test_rows_that_move_between_chunks_of_two_snapshots(
    site: Site,
    lose_keeper: Callable[[Any], None],
    read_again: list[int],
    monkeypatch: pytest.MonkeyPatch,
    half: Any,
    identity: str,
    part_rows: int,
) -> None:
    monkeypatch.setattr("wal2lake.tables.landing.PART_ROWS", part_rows)
    make_table(site, identity)
    lose_keeper(half)
    read = site.count_chunks("public.t")
    assert read > 1
    move_rows(site)
    site.run()
    done = site.state("public.t").landed
    assert done is not None
    assert len(done.snapshots) == 2
    assert bool(read_again) == (half is first_half_then_lost and identity == "DEFAULT")
    site.same("public.t")
    site.sql("UPDATE t SET n = 9 WHERE id % 7 = 0", "DELETE FROM t WHERE id % 11 = 0")
    site.run()
    site.same("public.t")


@pytest.mark.parametrize("statement", ["ALTER TABLE t DROP COLUMN big", "ALTER PUBLICATION pub DROP TABLE t"])
def test_what_cannot_be_read_again_any_more_is_passed_over(
    site: Site, lose_keeper: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    make_table(site)
    lose_keeper(first_half_then_lost)
    move_rows(site)

    def too_late(*arguments: Any) -> Any:
        site.sql(statement)
        return reread.read_again(*arguments)

    monkeypatch.setattr("wal2lake.pipeline.apply.read_again", too_late)
    site.run()
    rows, source = site.lake_table("public.t").num_rows, len(site.source("t"))
    assert rows < source if "PUBLICATION" in statement else rows == source


def test_rows_move_again_after_the_second_snapshot(site: Site, lose_keeper: Callable[[Any], None]) -> None:
    make_table(site)
    lose_keeper(first_half_then_lost)
    move_rows(site)
    lose_keeper(first_half_then_lost)
    site.sql("UPDATE t SET n = 5 WHERE id % 2 = 0", "DELETE FROM t WHERE id = 96")
    site.run()
    site.sql("UPDATE t SET id = id + 5000 WHERE id > 90", f"UPDATE t SET big = {long_text('9')} WHERE id = 60")
    site.run()
    site.same("public.t")


def test_a_driver_that_dies_while_the_stages_are_committed(
    site: Site, lose_keeper: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(site)
    lose_keeper(first_half_then_lost)
    move_rows(site)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("wal2lake.sinks.delta.DeltaSink.commit_files", _interrupt)
        site.run()
    assert site.state("public.t").landed is None
    assert not DeltaTable.is_deltatable(f"{site.config.lake.path}/public/t")
    site.run()
    site.same("public.t")


@pytest.mark.parametrize("several", [False, True])
def test_another_log_takes_over_where_the_lake_stands(
    site: Site, lose_keeper: Callable[[Any], None], several: bool
) -> None:
    """A log is lost, or thrown away, right after its last commit was applied; the slot goes on."""
    make_table(site)
    site.run()
    site.sql("UPDATE t SET n = 1 WHERE id < 9")
    site.run()
    site.begin_new_log()
    site.sql("UPDATE t SET n = 2 WHERE id < 5", "DELETE FROM t WHERE id = 7")
    if several:
        lose_keeper(first_half_then_lost)
        move_rows(site)
    site.run()
    site.same("public.t")
    site.sql("UPDATE t SET n = 3 WHERE id = 6")
    site.run()
    site.same("public.t")


def _interrupt(*arguments: object, **named: object) -> None:
    raise KeyboardInterrupt


def test_without_a_key_the_chunks_of_a_lost_snapshot_are_read_again(
    site: Site, lose_keeper: Callable[[Any], None]
) -> None:
    make_table(site)
    site.sql("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t REPLICA IDENTITY FULL")
    lose_keeper(first_half_then_lost)
    move_rows(site)
    site.run()
    done = site.state("public.t").landed
    assert done is not None
    assert len(done.snapshots) == 1
    site.same("public.t")


def test_a_rewritten_heap_voids_what_was_read(site: Site, lose_keeper: Callable[[Any], None]) -> None:
    make_table(site)
    lose_keeper(first_half_then_lost)
    site.sql("DELETE FROM t WHERE id <= 60", "VACUUM FULL t")
    site.run()
    done = site.state("public.t").landed
    assert done is not None
    assert len(done.snapshots) == 1
    site.same("public.t")


def test_a_table_that_is_truncated_while_it_is_read_is_read_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(site)
    site.configure_pipeline(on_unfollowable="resync")  # the last statement may come when all is read
    turns = iter(("TRUNCATE t", "ALTER TABLE t ALTER n TYPE bigint", "INSERT INTO t VALUES (1, 1, 'new', NULL)"))

    def meanwhile(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        outcomes = run_here(spark, task, items[:1])
        if statement := next(turns, None):
            site.sql(statement)
        return outcomes + run_here(spark, task, items[1:])

    monkeypatch.setattr("tests.pipeline.conftest.LocalJobs.copy", meanwhile)
    for _ in range(3):
        site.run()
    site.same("public.t")


def test_a_session_that_waits_for_the_table_does_not_block_the_snapshot(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(site)

    turns = iter(("SET lock_timeout = '1s'", "TRUNCATE t"))  # waits for nobody

    def meanwhile(spark: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        site.sql(*turns)
        return run_here(spark, task, items)

    monkeypatch.setattr("tests.pipeline.conftest.LocalJobs.copy", meanwhile)
    site.run()
    site.same("public.t")
