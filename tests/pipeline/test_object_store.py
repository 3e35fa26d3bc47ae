"""Capture and pipeline over an object store, as they are: what the tables hold in the end is what the source does."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.conftest import Site
from tests.s3 import SECRET, Fault, S3Server
from tests.waiting import eventually
from wal2lake.capture import startup
from wal2lake.capture.capture import Capture
from wal2lake.changelog import objects
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.events import read_events
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import CaptureStatus
from wal2lake.config import LogConfig
from wal2lake.errors import ConnectError, SlotInUseError
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.verify.run import verify

pytestmark = pytest.mark.server


@pytest.fixture
def remote(site: Site, s3: S3Server, tmp_path: Path) -> Site:
    """A table of three rows, and nothing in log and lake."""
    log = LogConfig(path=s3.url(f"{tmp_path.name}/log"), local_path=str(tmp_path / "local"), segment_seconds=0.05)
    site.config = replace(site.config, log=log)
    site.sql("CREATE TABLE public.a (id int PRIMARY KEY, name text)", "CREATE PUBLICATION pub FOR TABLE public.a")
    site.sql("INSERT INTO a SELECT n, 'row ' || n FROM generate_series(1, 3) n")
    return site


@contextmanager
def capturing(site: Site) -> Iterator[list[Exception]]:
    """What ends it is in the list at once."""
    stop, failures = threading.Event(), list[Exception]()

    def capture() -> None:
        try:
            Capture(site.config).run(stop)
        except Exception as error:  # noqa: BLE001 - told in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
    assert not failures


def captured(site: Site, failures: list[Exception]) -> int:
    """Wait until the log has all that has committed; where it ends."""
    row = site.connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchone()
    assert row is not None

    def durable() -> bool:
        with suppress(ConnectError):
            return ChangeLog.exists(site.config.log.path) and site.log().durable_lsn() >= row[0]
        return False

    eventually(durable, failures, poll_s=0.1)
    return int(row[0])


def test_a_store_that_fails_now_and_then_loses_nothing(
    remote: Site, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what is tried again at once as well: sessions of the stream end, and begin anew."""
    site, chance, folder = remote, random.Random(7), remote.config.log.path.split("/")[3]
    segments = 4

    def fault(method: str, path: str) -> Fault | None:
        nonlocal segments
        if folder in path and method == "PUT" and "/segments/" in path and segments:
            segments -= 1
            return "503"
        return chance.choice(("503", "lost")) if folder in path and chance.random() < 0.05 else None

    monkeypatch.setattr(objects, "RETRIES", 1)
    with capturing(site) as failures:
        captured(site, failures)
        start, s3.fault = site.log().last_end_lsn, fault
        try:
            for number in range(12):
                site.sql(f"INSERT INTO a VALUES ({10 + number}, 'x')")
                eventually(lambda: not segments, failures)
        finally:
            s3.fault = lambda *_: None
        end = captured(site, failures)
    assert site.log().transactions(start, end).num_rows == 12
    assert "disconnected" in [event.kind for event in read_events(site.config.log.path)]
    assert list(verify_log(storage_at(site.config.log.path))) == []


@pytest.mark.spark
def test_what_goes_through_an_object_store_is_the_source_in_the_end(
    remote: Site, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, table = remote, "public.a"
    monkeypatch.setattr(startup, "PATIENCE_S", 0.1)
    with capturing(site) as failures:
        captured(site, failures)
        run_pipeline(site.config, available_now=True)
        assert site.lake(table) == site.source(table)
        site.sql(
            "INSERT INTO a VALUES (4, 'four')", "UPDATE a SET name = 'one' WHERE id = 1", "DELETE FROM a WHERE id = 2"
        )
        with pytest.raises(SlotInUseError, match="Another capture process"):
            Capture(site.config).run(threading.Event())
        captured(site, failures)
        run_pipeline(  # on another machine, which has no checkpoint
            replace(site.config, log=replace(site.config.log, local_path=str(tmp_path / "elsewhere"))),
            available_now=True,
        )
        assert site.lake(table) == site.source(table)
        report = verify(site.config, spark)
    assert report.ok and [str(result) for result in report.tables] == [table]
    assert list(verify_log(storage_at(site.config.log.path))) == []
    said = CaptureStatus.read(storage_at(site.config.log.path))
    assert said is not None and said.state == "stopped"
    events = [event.kind for event in read_events(site.config.log.path)]
    assert {"log_created", "connected", "copied", "batch", "stopped"} <= {*events}
    assert SECRET not in repr(site.config) + "".join(map(str, read_events(site.config.log.path)))
    assert not (tmp_path / "log").exists()
