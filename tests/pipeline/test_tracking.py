"""What the status says of tables and of an earlier end is so at the moment that it is said."""

from __future__ import annotations

import shutil

import pytest

from tests.pipeline.conftest import LocalEngine, Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import PipelineStatus
from wal2lake.errors import LogFullError
from wal2lake.pipeline.loop import Pipeline
from wal2lake.pipeline.tracking import ProgressTracker

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
