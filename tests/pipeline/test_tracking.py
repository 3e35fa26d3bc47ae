"""What the status says of tables and of an earlier end is so at the moment that it is said."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.pipeline.conftest import LocalEngine, Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import PipelineStatus
from wal2lake.errors import LogFullError
from wal2lake.monitor.places import Places
from wal2lake.monitor.status import status_of
from wal2lake.pipeline.loop import Pipeline
from wal2lake.pipeline.tracking import ProgressTracker
from wal2lake.tables.asking import ask
from wal2lake.tables.state import Quarantine

pytestmark = pytest.mark.server


@pytest.fixture
def two(site: Site) -> Site:
    """public.a and public.b are in the lake."""
    for name in "ab":
        site.sql(f"CREATE TABLE public.{name} (id int PRIMARY KEY)", f"INSERT INTO {name} VALUES (1)")
    site.publish("a", "b")
    site.run()
    return site


def said(site: Site, *, streaming: bool) -> PipelineStatus:
    """By a pipeline that has begun, and knows both tables."""
    tracker = ProgressTracker(site.config, site.position, site.waiting, site.waiting)
    batches = site.batches(ChangeLog.open(site.config.log.path))
    for name in "ab":
        batches.tables.of("public", name)
    tracker.write(batches, streaming=streaming)
    found = PipelineStatus.read(site.log().storage)
    assert found is not None
    return found


def test_a_table_streams_when_the_stream_does_and_the_lake_has_it(two: Site) -> None:
    before = said(two, streaming=False)
    assert (before.state, {table.state for table in before.tables.values()}) == ("starting", {"catching_up"})
    streaming = said(two, streaming=True)
    assert (streaming.state, {table.state for table in streaming.tables.values()}) == ("streaming", {"streaming"})
    shutil.rmtree(two.folder_of_lake("a"))
    lost = said(two, streaming=True)
    assert [lost.tables[f"public.{name}"].state for name in "ab"] == ["catching_up", "streaming"]


def test_an_idle_table_is_not_behind_while_another_is(two: Site) -> None:
    assert {table.behind for table in said(two, streaming=True).tables.values()} == {False}
    two.sql("INSERT INTO b VALUES (2)")
    two.capture()
    found = said(two, streaming=True)
    assert found.lag_bytes > 0
    assert [found.tables[f"public.{name}"].behind for name in "ab"] == [False, True]


def test_why_a_pipeline_failed_is_said_until_it_works_again(two: Site) -> None:
    def full() -> None:
        raise LogFullError("The disk is full.")

    with pytest.raises(LogFullError):
        Pipeline(two.config, LocalEngine(two, full), two.stop).run()
    assert (two.status()["state"], two.status()["reason"]) == ("failed", "The disk is full.")
    for _ in range(2):  # it is started again and again
        again = said(two, streaming=False)
        assert (again.state, again.reason) == ("starting", "The disk is full.")
    assert said(two, streaming=True).reason is None


def test_what_is_left_out_stays_a_finding_until_it_stands_where_the_stream_does(left_out: Site) -> None:
    """From the first status of a pipeline that starts again on: nobody is told that it is over."""

    def found() -> tuple[str, list[tuple[str, str]]]:
        told = status_of(site.config, Places(None, None, None, {}, True, ()))
        states = {table.name: table.state for table in told.progress.tables}
        return states["public.a"], [p.key for p in told.problems if p.kind == "table_quarantined"]

    site, of_a = left_out, [("table_quarantined", "public.a")]
    seen = []

    def die() -> None:
        seen.append(found())
        raise LogFullError("The disk is full.")

    with pytest.raises(LogFullError):
        Pipeline(site.config, LocalEngine(site, die), site.stop).run()
    assert [*seen, found()] == [("quarantined", of_a)] * 2
    assert {name: (t["state"], t["rows"]) for name, t in site.status()["tables"].items()} == {
        "public.a": ("quarantined", None), "public.b": ("catching_up", None),
    }  # fmt: skip

    site.configure_pipeline(unrepresentable="null")
    tracker, batches = ProgressTracker(site.config, site.position, site.waiting, site.waiting), site.batches(site.log())
    batches.discover(site.position)
    for again in (batches, site.batches(site.log())):  # whoever starts while it is tried knows it too
        tracker.write(again, streaming=True)
        assert found() == ("catching_up", of_a)
        assert "It was left out: " in (tracker.status.tables["public.a"].reason or "")
    site.synchronize(batches)
    tracker.write(batches, streaming=True)
    assert found() == ("streaming", [])


def test_one_that_is_left_out_and_read_anew_stays_a_finding(two: Site) -> None:
    folder = two.folder("public.a")
    folder.write(replace(folder.read(), stage="quarantined", quarantine=Quarantine("SinkError", "No.", 1.5)))
    ask(two.config, ["public.a"], "resync")
    batches = two.batches(two.log())
    assert two.state("public.a").failure is not None
    batches.discover(two.position)
    assert (two.state("public.a").stage, two.state("public.a").failure is not None) == ("init", True)
    two.synchronize(batches)
    assert (two.state("public.a").stage, two.state("public.a").failure) == ("ready", None)
