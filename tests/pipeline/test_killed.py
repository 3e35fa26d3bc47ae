"""The pipeline as it runs: beside capture, under a live workload, stopped politely, and killed without warning."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psycopg
import pytest

from tests.pipeline.conftest import Site
from tests.waiting import eventually
from wal2lake.capture import run_capture
from wal2lake.spark.pipeline import run_pipeline

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

RUN = """
    import json, sys
    from wal2lake.config import Config
    from wal2lake.spark.pipeline import run_pipeline
    run_pipeline(Config.from_dict(json.load(sys.stdin)))
"""


@contextmanager
def capturing(site: Site) -> Iterator[None]:
    stop = threading.Event()
    capture = threading.Thread(target=run_capture, args=(site.config, stop))
    capture.start()
    try:
        yield
    finally:
        stop.set()
        capture.join()


@contextmanager
def working(site: Site, *statements: str) -> Iterator[None]:
    """The statements again and again."""
    stop = threading.Event()

    def work() -> None:
        with psycopg.connect(site.dsn, autocommit=True) as connection:
            while not stop.is_set():
                for statement in statements:
                    connection.execute(statement.encode())
                    time.sleep(0.02)  # a load, not a flood

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def drain(site: Site) -> None:
    """Let a pipeline apply all that has committed by now."""
    row = site.connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    run_pipeline(site.config, until=int(row[0]))


def killed_when(site: Site, condition: Callable[[], bool]) -> None:
    """Start a driver of its own, and kill it when the condition holds."""
    document = {**asdict(site.config), "spark": {"spark.master": "local[2,4]"}}
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(RUN)], stdin=subprocess.PIPE, text=True)
    assert driver.stdin is not None
    json.dump(document, driver.stdin)
    driver.stdin.close()
    try:
        eventually(condition, alive=lambda: driver.poll() is None, timeout_s=300, poll_s=0.01)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()


def make_tables(site: Site) -> None:
    site.configure_pipeline(snapshot_chunk_bytes=1 << 19)
    site.sql(
        "CREATE TABLE public.t (id int PRIMARY KEY, n int, pad text)",
        "INSERT INTO t SELECT i, 0, repeat(md5(i::text), 20) FROM generate_series(1, 8000) i",
        "CREATE TABLE public.u (id int, PRIMARY KEY (id))",
        "CREATE PUBLICATION pub FOR TABLE t, u",
    )


WORK = (
    "UPDATE t SET n = n + 1 WHERE id % 97 = (random() * 96)::int",
    "BEGIN; DELETE FROM t WHERE id = 7; INSERT INTO t VALUES (7, 1, 'new'); COMMIT",
    "UPDATE t SET id = -id WHERE id IN (-50, 50)",
    "BEGIN; TRUNCATE u; INSERT INTO u SELECT generate_series(1, 5); COMMIT",
)


def test_a_driver_killed_in_the_snapshot_and_in_a_batch_goes_on(spark_site: Site) -> None:
    site = spark_site
    make_tables(site)
    folder = site.folder("public.t")
    with capturing(site):
        with working(site, *WORK):
            killed_when(site, lambda: site.count_chunks("public.t") > 0)
            plan = folder.read().plan
            killed_when(site, lambda: folder.read().landed is not None and status_changes(site) > 0)
        drain(site)
    done = folder.read().landed
    assert plan is not None
    assert done is not None
    assert done.plan_id == plan.plan_id, "what was read before the kill was kept"
    site.same("public.t", "public.u")


def status_changes(site: Site) -> int:
    return int(site.status().get("changes", 0))


def test_a_stop_before_the_start_is_over_begins_nothing(spark_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while Java starts."""
    monkeypatch.setattr("wal2lake.pipeline.loop.STATUS_S", 60)  # or the snapshot might be begun and cancelled
    spark_site.sql("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    spark_site.publish("a")
    stop = threading.Event()
    stop.set()
    run_pipeline(spark_site.config, stop)
    assert not Path(spark_site.config.lake.path).exists()


def test_a_stop_ends_the_pipeline_where_it_is(spark_site: Site) -> None:
    site = spark_site
    make_tables(site)
    stop = threading.Event()
    with capturing(site), working(site, *WORK):
        pipeline = threading.Thread(target=run_pipeline, args=(site.config, stop))
        pipeline.start()
        eventually(lambda: status_changes(site) > 0, alive=pipeline.is_alive, timeout_s=300)
        stop.set()
        pipeline.join(60)
        assert not pipeline.is_alive()
    with capturing(site):
        drain(site)
    site.same("public.t", "public.u")
