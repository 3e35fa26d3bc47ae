"""While PostgreSQL is away, what the log has goes on into the lake, and what needs the server is made up for later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from psycopg.conninfo import make_conninfo

from tests.pipeline.conftest import LocalEngine, Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import ConnectError
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.loop import Pipeline
from wal2lake.spark.pipeline import run_pipeline

pytestmark = pytest.mark.server


@pytest.fixture
def outage(left_out: Site) -> Site:
    """public.a is left out; two changes of public.b are in the log, and nobody is at the port."""
    site = left_out
    site.configure_pipeline(unrepresentable="null")
    site.sql("INSERT INTO b VALUES (1)", "INSERT INTO b VALUES (2)")
    site.capture()
    go_away(site)
    return site


def go_away(site: Site) -> None:
    dsn = make_conninfo(site.dsn, host="127.0.0.1", port=1)
    site.config = replace(site.config, source=replace(site.config.source, dsn=dsn))


def come_back(site: Site) -> None:
    site.config = replace(site.config, source=replace(site.config.source, dsn=site.dsn))


def started(site: Site) -> Batches:
    return site.batches(ChangeLog.open(site.config.log.path))


def test_what_a_start_without_the_server_could_not_do_is_made_up_for(outage: Site) -> None:
    site = outage
    batches = started(site)
    with pytest.raises(ConnectError):
        batches.discover(site.position)
    assert batches.tables.some_in_lake
    with pytest.raises(ConnectError):
        site.synchronize(batches)
    come_back(site)
    batches.config = site.config
    batches.discover(site.position)
    site.synchronize(batches)
    batches.require_none_quarantined()
    assert site.lake("public.a") == [(0, None)]


def test_a_start_without_the_server_goes_on_with_what_is_in_the_lake(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("b")
    site.run()
    go_away(site)
    Pipeline(site.config, LocalEngine(site), site.stop).run()
    assert "Looking for new tables again later" in caplog.text


def test_changes_are_applied_without_the_server(outage: Site) -> None:
    """But for the first ones after a new connection, whose columns have to be asked for."""
    site = outage
    log = ChangeLog.open(site.config.log.path)
    first = int(log.end_lsn_within(site.position, max_rows=1))
    come_back(site)
    batches = started(site)
    batches.discover(site.position)
    site.apply(batches, first)
    batches.config = replace(site.config, source=replace(site.config.source, dsn="host=127.0.0.1 port=1"))
    site.apply(batches)
    site.same("public.b")


def test_without_anything_in_the_lake_the_server_is_needed(site: Site) -> None:
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("b")
    go_away(site)
    with pytest.raises(ConnectError):
        Pipeline(site.config, LocalEngine(site), site.stop).run()


def test_a_new_table_in_a_batch_is_read_when_the_server_is_back(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("b")
    site.run()
    site.sql("ALTER PUBLICATION pub ADD TABLE a", "INSERT INTO a VALUES (1)")
    site.capture()
    go_away(site)
    batches = started(site)
    site.apply(batches)
    with pytest.raises(ConnectError):
        site.synchronize(batches)
    come_back(site)
    batches.config = batches.snapshots.config = site.config
    site.synchronize(batches)
    site.same("public.a")


@pytest.mark.spark
def test_the_whole_pipeline_without_the_server(spark_site: Site) -> None:
    site = spark_site
    site.sql("CREATE TABLE public.b (id int PRIMARY KEY)", "INSERT INTO b VALUES (1)")
    site.publish("b")
    site.run()
    go_away(site)
    run_pipeline(site.config, available_now=True)
