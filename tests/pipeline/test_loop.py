"""The whole pipeline without Spark, by the port: what it does with a stream that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.pipeline.conftest import LocalEngine, LocalJobs, LocalStream, Site
from tests.waiting import eventually
from wal2lake.changelog.log import ChangeLog
from wal2lake.errors import LogMismatchError, Wal2LakeError
from wal2lake.pipeline.loop import Pipeline
from wal2lake.spark.jobs import spark_lost
from wal2lake.tables.failures import SparkLostError, WorkerLostError

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


class Unsteady(LocalEngine):
    """Spark, whose Python processes fail to start now and then. ``starts`` counts those of Spark itself."""

    def __init__(self, site: Site, failures: int) -> None:
        super().__init__(site, self._begin)
        self.starts = self.streams = 0
        self.failures = failures

    def _begin(self) -> None:
        self.starts += 1

    def stream(self, beginning: int, batch: Callable[[int, int, int], None], *, available_now: bool) -> LocalStream:
        self.streams += 1
        if self.streams == 1:
            raise WorkerLostError("Spark gave up: Python worker failed to connect back.")
        stream = super().stream(beginning, batch, available_now=available_now)
        if self.streams <= self.failures:
            stream.wait = starved  # type: ignore[method-assign]
        return stream


def starved(*_: Any) -> None:
    raise WorkerLostError("Spark gave up: Python worker failed to connect back.")


def test_a_python_process_that_did_not_start_costs_no_new_spark(
    followed: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site, engine = followed, Unsteady(followed, 3)
    site.sql("INSERT INTO a VALUES (7)")
    site.capture()
    Pipeline(site.config, engine, site.stop).run()
    assert (engine.starts, engine.streams) == (1, 4)
    # the first time it was to start before the tables were looked at, and without a pause once they are
    assert [f"starts again in {pause} s" in caplog.text for pause in (0.2, 0.4, 0.8)] == [True, True, False]
    site.same("public.a")
    assert site.status()["state"] == "stopped"


def test_a_stop_ends_the_tries(followed: Site) -> None:
    site, engine = followed, Unsteady(followed, 10**6)
    pipeline = threading.Thread(target=Pipeline(site.config, engine, site.stop).run)
    pipeline.start()
    eventually(lambda: "starts again" in (site.status().get("waiting_for") or ""), alive=pipeline.is_alive)
    assert site.status()["state"] == "waiting"
    site.stop.set()
    pipeline.join(30)
    assert not pipeline.is_alive()
    assert site.status()["state"] == "stopped"


def test_tables_are_read_when_python_starts_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first ones, before there is a stream."""
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    site.publish("a")
    tries = iter((starved, starved))
    copy = LocalJobs.copy
    monkeypatch.setattr(LocalJobs, "copy", lambda jobs, task, items: next(tries, copy.__get__(jobs))(task, items))
    engine = Unsteady(site, 0)
    Pipeline(site.config, engine, site.stop).run()
    assert engine.starts == 1
    site.same("public.a")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "[STREAM_FAILED] x\njava.lang.RuntimeException: Python worker failed to connect back.\n\tat y",
            WorkerLostError,
        ),
        ("Job aborted\n: Timed out while waiting for the Python worker to connect back after 10 s", WorkerLostError),
        ("Job aborted: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", WorkerLostError),
        ("EOFException occurred while reading the port number from pyspark.daemon's stdout.", WorkerLostError),
        ("[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when … perform latestOffset: null", WorkerLostError),
        ("[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Socket connection timeout.", WorkerLostError),
        ("java.lang.OutOfMemoryError: Java heap space", SparkLostError),
        ("Answer from Java side is empty", SparkLostError),
    ],
)
def test_what_of_spark_is_lost(said: str, kind: type[SparkLostError]) -> None:
    lost = spark_lost(RuntimeError(said))
    assert type(lost) is kind
    assert lost.transient and "\n" not in str(lost)
