"""What the pipeline waits for is in its status at once, and in its log when it lasts."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.pipeline.conftest import LocalEngine, Site
from tests.waiting import eventually
from wal2lake.config import Config
from wal2lake.errors import InterruptedByUser, SparkError
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.loop import Pipeline
from wal2lake.spark.pipeline import run_pipeline


class Clock(threading.Event):
    """An event for which waiting takes no time but on this clock."""

    now = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0
        return self.is_set()


def test_a_wait_that_lasts_is_a_warning_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    waiting = Interrupts(clock, lambda: clock.now)
    assert waiting.reason is None
    for second in range(100, 170):
        waiting.pause(f"For {second}.", 1)
    assert clock.now == pytest.approx(170)
    assert waiting.reason == "For 169."
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == ["For 105.", "For 165."]
    clock.now = 175.0
    assert waiting.reason is None
    waiting.pause("For another.")
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 2


@pytest.mark.parametrize("end", ["stop", "close"])
def test_whoever_waits_hears_that_it_is_over(end: str) -> None:
    stop = threading.Event()
    waiting = Interrupts(stop)
    waiting.check_for_interrupts()
    stop.set() if end == "stop" else waiting.close()
    with pytest.raises(InterruptedByUser):
        waiting.pause("For ever.")


@pytest.mark.server
def test_the_status_says_that_spark_is_being_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    told: list[object] = []

    def fail(_: Config) -> None:
        eventually(site.status)
        told.append(site.status()["state"])
        raise SparkError("No Java.")

    monkeypatch.setattr("wal2lake.spark.pipeline.build_session", fail)
    with pytest.raises(SparkError):
        run_pipeline(site.config)
    assert told == ["starting"]
    assert site.status()["state"] == "failed"


@pytest.mark.server
def test_the_status_says_whose_transaction_keeps_a_snapshot_waiting(site: Site) -> None:
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY)")
    site.publish("a")
    with ThreadPoolExecutor(1) as executor, psycopg.connect(site.dsn) as writer:
        writer.execute("INSERT INTO a VALUES (1)")
        pid = writer.info.backend_pid
        running = executor.submit(Pipeline(site.config, LocalEngine(site), site.stop).run)
        eventually(lambda: running.done() or site.status().get("state") == "waiting")
        told = site.status()
        writer.commit()
        running.result(60)
    reason = rf"Before a snapshot, waiting for 1 transaction\(s\) that write to end: pid {pid} for \d+ s\."
    assert re.fullmatch(reason, str(told["waiting_for"]))
    site.same("public.a")
