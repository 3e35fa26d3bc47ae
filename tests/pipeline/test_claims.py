"""The log keeps what a table that is left out will need, as long as it is left out and no longer."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest

from tests.pipeline.conftest import LocalEngine, Site
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import SchemaChangeError
from wal2lake.pipeline.loop import Pipeline

pytestmark = pytest.mark.server


@pytest.fixture
def renamed(site: Site) -> Site:
    """a is left out, b goes on."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, x text)", "CREATE TABLE public.b (id int PRIMARY KEY)")
    site.publish("a", "b")
    site.run()
    site.sql("ALTER TABLE a RENAME x TO y", "INSERT INTO a VALUES (1, 'a')", "INSERT INTO b VALUES (1)")
    with pytest.raises(SchemaChangeError):
        site.run()
    return site


def claims(site: Site) -> list[str]:
    return sorted(ChangeLog.open(site.config.log.path).released())


def test_a_table_whose_folders_were_moved_by_hand_claims_nothing(renamed: Site) -> None:
    site = renamed
    assert claims(site) == ["wal2lake@public.a"]
    shutil.rmtree(site.documents("public.a"))
    shutil.rmtree(f"{site.config.lake.path}/public/a")
    site.run()
    site.same("public.a", "public.b")
    assert claims(site) == []


def test_a_table_that_is_left_out_and_not_published_any_more_is_told_of(renamed: Site) -> None:
    site = renamed
    site.sql("ALTER PUBLICATION pub DROP TABLE a")
    with pytest.raises(SchemaChangeError, match="renamed"):
        site.run()
    assert claims(site) == ["wal2lake@public.a"]


def test_what_comes_after_a_snapshot_stays_while_it_is_read(site: Site) -> None:
    """Another pipeline on the same log would have it removed before this one's stream begins."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    for number in range(3):
        site.sql(f"INSERT INTO a VALUES ({number})")
        site.run()
    site.position = 0
    removed: list[int] = []

    def trim() -> None:
        log = ChangeLog.open(site.config.log.path)
        log.release("another", log.last_end_lsn)
        removed.append(log.trim(0))

    Pipeline(site.config, LocalEngine(site, trim), threading.Event()).run()
    assert removed == [0]


def test_the_status_is_told_before_the_stream_starts_although_the_log_was_trimmed(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    for number in range(3):
        site.sql(f"INSERT INTO a VALUES ({number})")
        site.run()
    log = ChangeLog.open(site.config.log.path)
    log.release(site.config.pipeline.name, site.position)
    assert log.trim(0) == 2
    told: list[dict[str, Any]] = []

    def look() -> None:
        eventually(site.status)
        told.append(site.status())

    Pipeline(site.config, LocalEngine(site, look), threading.Event()).run()
    assert told[0]["state"] == "starting"
    assert told[0]["lag_bytes"] >= 0
