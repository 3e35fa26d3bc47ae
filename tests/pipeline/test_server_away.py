"""While PostgreSQL is away, what the log has goes on into the lake, and what needs the server is made up for later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.pipeline.conftest import LocalEngine, LocalStream, Site
from tests.waiting import eventually
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


@pytest.fixture
def three(site: Site) -> Site:
    """Tables a, b and c in the lake; the stream has begun again, and speaks anew of b and c, amid their changes."""
    for name in "abc":
        site.sql(f"CREATE TABLE public.{name} (id int PRIMARY KEY, v text)")
    site.publish("a", "b", "c")
    site.run()
    return site


def step(site: Site, name: str, number: int) -> None:
    site.sql(f"INSERT INTO {name} VALUES ({number}, 'x')")


def test_the_stream_goes_on_as_far_as_the_log_tells(three: Site) -> None:
    """What the server announces again may be another table by now, which only its catalog knows."""
    site = three
    batches = started(site)
    for name in "ab":
        step(site, name, 1)
    site.apply(batches)  # while the server is there
    for name in "ab":
        step(site, name, 2)
    step(site, "c", 2)  # announced in this session for the first time
    step(site, "a", 3)
    site.capture()
    go_away(site)
    batches = started(site)
    site.apply(batches, site.log().last_end_lsn)
    stages = {name: site.state(f"public.{name}").stage for name in "abc"}
    assert set(stages.values()) <= {"ready", "catch_up"} and stages["c"] == "catch_up"
    with pytest.raises(ConnectError):
        site.synchronize(batches)
    assert site.lake("public.c") == []
    come_back(site)
    batches.config = site.config
    site.synchronize(batches)
    site.same("public.a", "public.b", "public.c")
    assert {site.state(f"public.{name}").stage for name in "abc"} == {"ready"}


def test_a_table_catches_up_to_where_it_is_announced(three: Site) -> None:
    """Of what it missed, the transactions before the announcement need nobody but the log."""
    site = three
    batches = started(site)
    for number in (1, 2, 3):
        step(site, "b", number)
    site.sql("ALTER TABLE b ADD w int", "INSERT INTO b VALUES (4, 'x', 1)")
    site.capture()
    ends = site.log().transactions(site.position, site.log().last_end_lsn)["end_lsn"].to_pylist()
    site.apply(batches, ends[0])
    go_away(site)
    batches.config = site.config
    site.apply(batches, ends[-1])
    assert (site.state("public.b").stage, site.state("public.b").needs_lsn) == ("catch_up", ends[0])
    with pytest.raises(ConnectError):
        site.synchronize(batches)
    assert site.lake("public.b") == [(1, "x"), (2, "x"), (3, "x")]
    assert site.state("public.b").needs_lsn == ends[2]
    come_back(site)
    batches.config = site.config
    site.synchronize(batches)
    site.same("public.b")


class StayingStream(LocalStream):
    """As a query does that waits for more."""

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        time.sleep(0.01)
        self.running = not self._site.stop.is_set()


class StayingEngine(LocalEngine):
    def stream(self, beginning: int, batch: Callable[[int, int, int], None], *, available_now: bool) -> LocalStream:
        return StayingStream(self.site, beginning, batch)


def test_the_pipeline_says_what_it_waits_for_and_goes_on(three: Site, tmp_path: Path) -> None:
    """The server's socket is where a link leads that is not there for a while."""
    site, link = three, tmp_path / "s"
    for name in "abc":
        step(site, name, 1)
    site.capture()
    dsn = make_conninfo(site.dsn, host=str(link))
    config = replace(site.config, source=replace(site.config.source, dsn=dsn))
    thread = threading.Thread(target=Pipeline(config, StayingEngine(site), site.stop).run)
    thread.start()
    try:
        eventually(lambda: site.status().get("state") == "waiting", alive=thread.is_alive)
        said = site.status()
        assert "connection" in said["waiting_for"]
        assert {(t["state"], "connection" in t["reason"]) for t in said["tables"].values()} == {("catching_up", True)}
        link.symlink_to(conninfo_to_dict(site.dsn)["host"])
        eventually(lambda: site.status()["state"] == "streaming", alive=thread.is_alive)
    finally:
        site.stop.set()
        thread.join(30)
    site.same("public.a", "public.b", "public.c")


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
