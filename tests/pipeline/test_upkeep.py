"""Tables that nothing changes any more are cleaned up as well."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.pipeline.conftest import LocalEngine, LocalJobs, Site
from wal2lake.lsn import LSN
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.loop import Pipeline
from wal2lake.pipeline.upkeep import EVERY_S, Upkeep
from wal2lake.sinks.base import TargetError
from wal2lake.sinks.delta import DeltaSink
from wal2lake.tables.table import Tables

pytestmark = pytest.mark.server


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rewritten(site: Site) -> Site:
    """public.a, whose one file was rewritten twice, and public.b, which was only read; nothing has to be kept."""
    site.config = replace(site.config, lake=replace(site.config.lake, retention_seconds=0))
    for table in "ab":
        site.sql(f"CREATE TABLE public.{table} (id int PRIMARY KEY, n int)", f"INSERT INTO {table} VALUES (1, 0)")
    site.publish("a", "b")
    site.run()
    for number in (1, 2):
        site.sql(f"UPDATE a SET n = {number}")
        site.run()
    return site


def files(site: Site, table: str) -> int:
    return len(list(site.folder_of_lake(table).glob("*.parquet")))


def versions(site: Site) -> list[int]:
    return [DeltaTable(str(site.folder_of_lake(table))).version() for table in "ab"]


def test_what_an_idle_table_removed_goes_and_then_it_is_let_be(rewritten: Site) -> None:
    site, clock, asked = rewritten, Clock(), []

    class Counting(LocalJobs):
        def run(self, task, items, tag=""):  # type: ignore[no-untyped-def]
            asked.append(sorted(map(str, items)))
            return super().run(task, items, tag)

    upkeep, tables = Upkeep(Counting(), clock), Tables(site.config)
    for table in "ab":
        tables.of("public", table)
    for now in (0.0, EVERY_S - 1, EVERY_S, 2 * EVERY_S, 3 * EVERY_S):
        clock.now = now
        upkeep.tick(tables, {"public.a": 2})
        assert files(site, "a") == (3 if now < EVERY_S else 1)
    site.same("public.a", "public.b")
    assert list(filter(None, asked)) == [["public.a", "public.b"]]
    stands = versions(site)
    for now in (4 * EVERY_S, 5 * EVERY_S):
        clock.now = now
        upkeep.tick(tables, {"public.a": 3})
    assert list(filter(None, asked)) == [["public.a", "public.b"], ["public.a"]]
    assert versions(site) == stands


def test_one_tables_trouble_is_told_and_tried_again(rewritten: Site, caplog: pytest.LogCaptureFixture) -> None:
    site, clock = rewritten, Clock()
    upkeep, tables = Upkeep(LocalJobs(), clock), Tables(site.config)
    for table in "ab":
        tables.of("public", table)
    upkeep.tick(tables, {})
    log = site.folder_of_lake("a") / "_delta_log"
    log.rename(log.with_name("apart"))
    clock.now = EVERY_S
    with caplog.at_level(logging.WARNING):
        upkeep.tick(tables, {})
    assert [record.getMessage() for record in caplog.records if "public.a is cleaned up later: " in record.getMessage()]
    log.with_name("apart").rename(log)
    for now in (EVERY_S + 1, 2 * EVERY_S + 1):
        clock.now = now
        upkeep.tick(tables, {})
    assert files(site, "a") == 1


def test_the_pipeline_does_it_between_batches(rewritten: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site = rewritten
    monkeypatch.setattr("wal2lake.pipeline.upkeep.EVERY_S", -1.0)
    monkeypatch.setattr("wal2lake.pipeline.loop.LOOK_S", 0.0)
    monkeypatch.setattr("wal2lake.pipeline.loop.HOUSEKEEPING_S", 0.0)
    site.sql("INSERT INTO a VALUES (2, 0)")
    site.capture()
    Pipeline(site.config, LocalEngine(site), site.stop).run()
    assert files(site, "a") == 2
    site.same("public.a")


@pytest.fixture
def many(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Four tables of a row each, of which maintenance is due with every fourth commit."""
    monkeypatch.setattr("wal2lake.sinks.delta.MAINTAIN_EVERY", 4)
    for table in "abcd":
        site.sql(f"CREATE TABLE public.{table} (id int PRIMARY KEY, n int)", f"INSERT INTO {table} VALUES (1, 0)")
    site.publish(*"abcd")
    site.run()
    return site


def change(site: Site, batches: Batches, number: int) -> None:
    """A batch that changes all four."""
    site.sql("".join(f"UPDATE {table} SET n = {number};" for table in "abcd"))
    site.apply(batches)


def test_what_falls_due_of_many_tables_at_once_is_spread_over_batches(
    many: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, done, real = many.batches(many.log()), list[str](), DeltaSink.maintain
    batches.discover(many.position)

    def maintained(sink: DeltaSink) -> float | None:
        done.append(Path(sink.uri).name)
        return real(sink)

    monkeypatch.setattr(DeltaSink, "maintain", maintained)
    behind = []
    for number in range(12):
        before = len(done)
        change(many, batches, number)
        behind.append(len(done) - before)
    assert max(behind) == 1, behind
    assert {*done} == {*"abcd"} and len(done) >= 8
    many.same(*(f"public.{table}" for table in "abcd"))


def test_a_table_that_cannot_be_maintained_is_left_out_from_the_batch_behind_which_it_was_its_turn(
    many: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = many.batches(many.log())
    batches.discover(many.position)
    real = DeltaSink.maintain

    def fails(sink: DeltaSink) -> float | None:
        if sink.uri.endswith("/b"):
            raise TargetError("A file is lost.")
        return real(sink)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaSink, "maintain", fails)
        stood = many.position
        for number in range(8):
            before, stood = stood, many.position
            change(many, batches, number)
            if batches.tables.quarantined():
                break
    assert [str(table) for table in batches.tables if table.quarantine] == ["public.b"]
    assert many.state("public.b").needs_lsn == LSN(stood) > before
    many.run()
    many.same(*(f"public.{table}" for table in "abcd"))
