"""land: server → capture → log → Spark → Delta append, against `pg_recvlogical -f /dev/null` alone on the same backlog.

Each of our rounds has a slot, a log and a lake of its own, made before the changes with the table still empty. What is
measured begins when capture connects, with its process, the Spark session and the streaming query up and idle, and
ends when the Delta table has the last transaction.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import common
from bench.capture import ORIGIN, committed_end, recvlogical
from wal2lake.capture import run_capture
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.sinks.base import Sink
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.spark.session import build_session
from wal2lake.tables.target import Target
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.1
Mode = Literal["mirror", "append"]
_PATIENCE_S = 300.0


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met."""
    parser = argparse.ArgumentParser(prog="python -m bench land", description=__doc__)
    parser.add_argument("--changes", type=int, default=common.CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        common.create_slot(postgres, ORIGIN)
        spark = build_session(Config())
        try:
            rounds = [prepared(postgres, Path(folder) / str(turn), turn) for turn in range(given.rounds)]
            common.insert_rows(postgres, given.changes)
            end = committed_end(postgres)
            turns = iter(rounds)
            rates = {
                "wal2lake": lambda: given.changes / landed(spark, next(turns), LSN.parse(end), given.changes),
                "pg_recvlogical": lambda: given.changes / recvlogical(postgres, end),
            }
            return common.verdict(common.alternate(rates, given.rounds), BAR)
        finally:
            spark.stop()


def prepared(
    postgres: EmbeddedPostgres, folder: Path, turn: int, mode: Literal["mirror", "append"] = "append"
) -> Config:
    """A pipeline that has its slot, its log and the table's snapshot."""
    config = Config(
        source=SourceConfig(postgres.tcp_dsn, common.PUBLICATION, f"land_{turn}"),
        log=LogConfig(str(folder / "log")),
        lake=LakeConfig(str(folder / "lake"), mode),
    )
    stop = threading.Event()
    capture = threading.Thread(target=run_capture, args=(config, stop))
    capture.start()
    try:
        run_pipeline(config, available_now=True)
    finally:
        stop.set()
        capture.join()
    return config


def landed(spark: SparkSession, config: Config, end: LSN, changes: int) -> float:
    """Seconds from connecting to the server until the Delta table has everything up to ``end``."""
    sink = Target.of(config, *common.TABLE.split(".")).sink()
    arrivals = Arrivals(sink, end)
    with pipeline(spark, config) as streaming, capture(config) as connect:
        began = time.perf_counter()
        connect.set()
        await_that(arrivals.complete, streaming)
        seconds = time.perf_counter() - began
    arrived = sum(pa.table(DeltaTable(sink.uri).get_add_actions(flatten=True))["num_records"].to_pylist())
    assert arrived == changes, f"{arrived} rows arrived"
    return seconds


class Arrivals:
    """Whether the Delta table of ``sink`` has everything up to ``end``; opens it only when it has a new version."""

    def __init__(self, sink: Sink, end: LSN) -> None:
        self._sink, self._end = sink, end
        self._log = Path(sink.uri) / "_delta_log"
        self._seen = 0

    def complete(self) -> bool:
        files = len(list(self._log.glob("[0-9]*.json")))
        if files == self._seen:
            return False
        self._seen = files
        state = self._sink.state()
        return state is not None and state.applied_lsn >= self._end


@contextmanager
def pipeline(spark: SparkSession, config: Config) -> Iterator[threading.Thread]:
    """The pipeline in a thread, its query waiting for changes."""
    stop = threading.Event()
    thread = threading.Thread(target=run_pipeline, args=(config, stop))
    thread.start()
    try:
        idle = ("Waiting", "Getting offsets")
        await_that(lambda: any(q.status["message"].startswith(idle) for q in spark.streams.active), thread)
        yield thread
    finally:
        stop.set()
        thread.join()


@contextmanager
def capture(config: Config) -> Iterator[Event]:
    """Capture in a process of its own, ready to connect when the event is set."""
    context = multiprocessing.get_context("spawn")
    ready, connect = context.Event(), context.Event()
    process = context.Process(target=_capture, args=(config, ready, connect))
    process.start()
    try:
        assert ready.wait(_PATIENCE_S)
        yield connect
    finally:
        process.terminate()
        process.join()


def _capture(config: Config, ready: Event, connect: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready.set()
    connect.wait()
    run_capture(config)


def await_that(condition: Callable[[], bool], alive: threading.Thread) -> None:
    """Look every 50 ms; fails when the pipeline's thread ends or patience does."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert alive.is_alive() and time.monotonic() < deadline, "the pipeline did not get there"
        time.sleep(0.05)
