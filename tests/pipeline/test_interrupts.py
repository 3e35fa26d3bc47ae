"""What the pipeline waits for is in its status at once, and in its log when it lasts."""

from __future__ import annotations

import re
import threading
import time

import psycopg
import pytest

from tests.pipeline.conftest import LocalEngine, LocalJobs, Site
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.errors import InterruptedByUser, SparkError
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.loop import Pipeline
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.tables.table import Tables


def test_a_wait_that_lasts_is_a_warning_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("wal2lake.pipeline.interrupts._POLL_S", 0)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    waiting = Interrupts(threading.Event())
    assert waiting.reason is None
    for now in range(100, 170):
        waiting.pause(f"For {now}.")
    assert waiting.reason == "For 169."
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == ["For 105.", "For 165."]
    now = 175.0
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
        deadline = time.monotonic() + 30
        while not told and time.monotonic() < deadline:
            if said := site.status():
                told.append(said["state"])
            time.sleep(0.05)
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
    pipeline = Pipeline(site.config, LocalEngine(site), site.stop)
    pipeline._await_log()
    log = ChangeLog.open(site.config.log.path)
    batches = site.batches(log)
    pipeline._progress.follow(batches)
    with psycopg.connect(site.dsn) as writer:
        writer.execute("INSERT INTO a VALUES (1)")
        pid = writer.info.backend_pid
        told: list[dict[str, object]] = []

        class Telling(Interrupts):
            def pause(self, reason: str) -> None:
                pipeline._reading.pause(reason)
                pipeline._publish_status()
                told.append(site.status())
                writer.commit()

        waiting = Telling(site.stop)
        pipeline._snapshots = Snapshots(site.config, LocalJobs(), Tables(site.config), log.start_lsn, waiting)
        assert pipeline._snapshots.read(batches.published()) == {}
    assert told[0]["state"] == "waiting"
    reason = rf"Before a snapshot, waiting for 1 transaction\(s\) that write to end: pid {pid} for \d+ s\."
    assert re.fullmatch(reason, str(told[0]["waiting_for"]))
