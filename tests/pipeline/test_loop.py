"""The whole pipeline without Spark, by the port: what it does with a stream that fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import LocalEngine, LocalStream, Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LogMismatchError, Wal2LakeError
from wal2lake.pipeline.loop import Pipeline
from wal2lake.tables.failures import SparkLostError

pytestmark = pytest.mark.server


@pytest.fixture
def followed(site: Site) -> Site:
    """public.a is in the lake, and three segments were applied."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    for number in range(3):
        site.sql(f"INSERT INTO a VALUES ({number})")
        site.capture()
        Pipeline(site.config, LocalEngine(site), site.stop).run()
    return site


def test_it_snapshots_follows_and_ends_with_the_log(followed: Site) -> None:
    followed.same("public.a")
    assert followed.status()["state"] == "stopped"
    assert followed.state("public.a").stage == "ready"


def lost(*_: Any) -> None:
    raise SparkLostError("Spark gave up: a process of its own died.")


@pytest.mark.parametrize("trimmed", [False, True])
def test_why_a_stream_failed_is_asked_of_the_log_itself(
    followed: Site, trimmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = followed
    monkeypatch.setattr(LocalStream, "wait", lost)
    monkeypatch.setattr(ChangeLog, "beginning", lambda log: int(log.start_lsn))
    if trimmed:
        log = ChangeLog.open(site.config.log.path)
        log.release(site.config.pipeline.name, site.position)
        assert log.trim(0) == 2
        site.position = int(log.start_lsn)
    expected: type[Wal2LakeError] = LogMismatchError if trimmed else SparkLostError
    with pytest.raises(expected):
        Pipeline(site.config, LocalEngine(site), site.stop).run()
