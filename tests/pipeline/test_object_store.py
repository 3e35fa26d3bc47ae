"""Capture and pipeline over an object store, as they are: what the tables hold in the end is what the source does."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import obstore
import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.pipeline.conftest import Site
from tests.s3 import SECRET, Fault, S3Server
from tests.waiting import eventually
from wal2lake import object_stores
from wal2lake.capture import startup
from wal2lake.capture.capture import Capture
from wal2lake.changelog.dump import verify_log
from wal2lake.changelog.events import read_events
from wal2lake.changelog.local import storage_at
from wal2lake.changelog.log import ChangeLog
from wal2lake.changelog.status import CaptureStatus
from wal2lake.cli.main import app
from wal2lake.config import LakeConfig, LogConfig
from wal2lake.errors import ConnectError, SlotInUseError
from wal2lake.object_stores import ObjectStore
from wal2lake.sinks import delta
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.tables.asking import ask
from wal2lake.urls import ObjectUrl
from wal2lake.verify.run import verify

pytestmark = pytest.mark.server


@pytest.fixture
def remote(site: Site, s3: S3Server, tmp_path: Path) -> Site:
    """A table of three rows, and nothing in log and lake, which are both there."""
    log = LogConfig(path=s3.url(f"{tmp_path.name}/log"), local_path=str(tmp_path / "local"), segment_seconds=0.05)
    lake = LakeConfig(path=s3.url(f"{tmp_path.name}/lake"), local_path=str(tmp_path / "local"))
    site.config = replace(site.config, log=log, lake=lake)
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

    monkeypatch.setattr(object_stores, "RETRIES", 1)
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


COMMANDS = (
    "status", "status --json", "tables", "tables --json", "tables --sql spark", "events", "events --json", "log list",
    "log consumers", "log list --json", "log verify", "check", "check --json",
)  # fmt: skip


def everything_told(site: Site, folder: Path) -> Iterator[tuple[str, str]]:
    """All that commands say, objects and files hold, and processes are started with, each with its place."""
    flags = ["--log", site.config.log.path, "--lake", place_with_options(site.config.lake)]
    source = ["--dsn", site.dsn, "--slot", site.name, "--publication", "pub"]
    for command in COMMANDS:
        own = source if command.startswith(("check", "status")) else []
        yield command, CliRunner().invoke(app, [*command.split(), *flags, *own]).output
    for place in (ObjectUrl.parse(site.config.log.path), site.config.lake.place.url):
        store = ObjectStore(place)
        for name in [one["path"] for page in obstore.list(store.client) for one in page]:
            yield f"{place.where}/{name}", obstore.get(store.client, name).bytes().to_bytes().decode("latin1")
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_text("latin1")
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            yield f"argv of {process.pid}", " ".join(process.cmdline())
    yield "repr", repr(site.config) + repr(site.config.lake.place)


def place_with_options(lake: LakeConfig) -> str:
    return f"{lake.path}?{'&'.join(f'{name}={value}' for name, value in lake.options.items())}"


@pytest.mark.spark
def test_what_goes_through_an_object_store_is_the_source_in_the_end(
    remote: Site,
    s3: S3Server,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, table, chance = remote, "public.a", random.Random(3)
    monkeypatch.setattr(startup, "PATIENCE_S", 0.1)
    monkeypatch.setattr(delta, "MARK_BYTES", 1)

    def fault(method: str, path: str) -> Fault | None:
        return chance.choice(("503", "lost")) if f"{tmp_path.name}/lake" in path and chance.random() < 0.03 else None

    with capturing(site) as failures:
        captured(site, failures)
        s3.fault = fault
        try:
            run_pipeline(site.config, available_now=True)
            assert site.lake(table) == site.source(table)
            site.sql(
                "INSERT INTO a VALUES (4, 'four')", "UPDATE a SET name = 'one' WHERE id = 1",
                "DELETE FROM a WHERE id = 2", "ALTER TABLE a ADD COLUMN n int DEFAULT 7",
                "INSERT INTO a VALUES (5, 'five', 5)",
            )  # fmt: skip
            with pytest.raises(SlotInUseError, match="Another capture process"):
                Capture(site.config).run(threading.Event())
            captured(site, failures)
            ask(site.config, [table], "resync")
            run_pipeline(  # on another machine, which has no checkpoint and no key index
                replace(
                    site.config,
                    log=replace(site.config.log, local_path=str(tmp_path / "elsewhere")),
                    lake=replace(site.config.lake, local_path=str(tmp_path / "elsewhere")),
                ),
                available_now=True,
            )
            site.sql("UPDATE a SET name = 'last' WHERE id = 3")
            captured(site, failures)
            run_pipeline(site.config, available_now=True)
        finally:
            s3.fault = lambda *_: None
        assert site.lake(table) == site.source(table)
        report = verify(site.config, spark)
        assert report.ok and [str(result) for result in report.tables] == [table]
        assert any(path.endswith(".bin") for method, path in s3.requests if method == "PUT" and tmp_path.name in path)
        place = site.config.lake.place.table("public", "a")
        DeltaTable(place.uri, storage_options=place.storage_options()).delete("id = 4")
        (damaged,) = verify(site.config, spark).tables
        assert (damaged.ok, damaged.rows_source, damaged.rows_lake) == (False, 4, 3)
        told = dict(everything_told(site, tmp_path))
        assert {where for where, text in told.items() if SECRET in text} == set()
        expected = {"check": f"{site.config.lake.path} takes tables", "tables --sql spark": place.uri, "tables": table}
        expected |= {"status": table, "log verify": "segments", "repr": "$WAL2LAKE_TEST_SECRET"}
        assert {where for where, text in expected.items() if text not in told[where]} == set()
    assert list(verify_log(storage_at(site.config.log.path))) == []
    said = CaptureStatus.read(storage_at(site.config.log.path))
    assert said is not None and said.state == "stopped"
    events = [event.kind for event in read_events(site.config.log.path)]
    assert {"log_created", "connected", "copied", "batch", "stopped"} <= {*events}
    assert SECRET not in caplog.text
    assert not any((tmp_path / name).exists() for name in ("log", "lake"))
