"""From a commit in the source to the commit in the lake, at a hundred transactions a second: p50 and p99.

One table, twenty tables (each transaction changes one), and a table of two million rows, whose changed rows are marked
(`lake.deletion_vectors`). Capture has a process of its own, the pipeline is as `wal2lake pipeline` runs it, with the
defaults of all settings but that one. Each transaction updates a row. When it committed says the server, when it could
be read the file that is the table's commit; both clocks are this machine's. What is committed in the first seconds,
while the pipeline asks the server about the tables, does not count. Beside them stands an empty micro-batch of the same
Spark session.

The ratio is the worst of all p50 to their bars, and p99 to theirs, which is 2.5 times the p50.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pyspark.sql import SparkSession

from bench import common, land
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.epoch import EPOCH_S
from wal2lake.lsn import LSN
from wal2lake.spark.session import build_session
from wal2lake.tables.target import Target
from wal2lake.testing.embedded import EmbeddedPostgres

BARS = {"1 table": 0.45, "20 tables": 0.7, "2 M rows": 0.7}  # seconds, p50
TAIL = 2.5  # p99 to p50
_TABLES = {"1 table": (1, 1_000), "20 tables": (20, 1_000), "2 M rows": (1, 2_000_000)}
_WARM_S = 4.0
_MICRO_BATCHES = 20


def main(argv: list[str]) -> int:
    """`python -m bench latency [--seconds N] [--rate N] [--only NAME]`."""
    parser = argparse.ArgumentParser(prog="python -m bench latency", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load, for each (20)")
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second (100)")
    parser.add_argument("--only", choices=[*BARS], action="append", help="instead of all")
    options = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        spark = build_session(Config())
        try:
            print(f"an empty micro-batch: {_empty_micro_batch(spark):.2f} s", flush=True)
            worst = 0.0
            for number, name in enumerate(options.only or BARS):
                config = _site(postgres, Path(folder) / str(number), number, *_TABLES[name])
                worst = max(worst, _measure(spark, config, name, *_TABLES[name], options))
        finally:
            spark.stop()
    print(f"ratio: {worst:.2f} (bar at most 1)")
    return 0 if worst <= 1 else 1


def _empty_micro_batch(spark: SparkSession) -> float:
    """Seconds, the median of some, of a query whose batches do nothing."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.foreachBatch(lambda _, number: None).start()
    try:
        while (progress := query.lastProgress) is None or progress["batchId"] < _MICRO_BATCHES:
            time.sleep(0.1)
        return statistics.median(float(p["durationMs"]["triggerExecution"]) for p in query.recentProgress) / 1e3
    finally:
        query.stop()


def _site(postgres: EmbeddedPostgres, folder: Path, number: int, tables: int, rows: int) -> Config:
    """Tables with a publication of their own, in the lake."""
    made = [
        f"CREATE TABLE {_table(number, of)} (id int PRIMARY KEY, n bigint, note text);"
        f"INSERT INTO {_table(number, of)} SELECT i, 0, 'note ' || i FROM generate_series(1, {rows}) AS i;"
        for of in range(tables)
    ]
    names = ", ".join(_table(number, of) for of in range(tables))
    postgres.psql("".join(made) + f"CREATE PUBLICATION latency_{number} FOR TABLE {names}")
    return Config(
        source=SourceConfig(postgres.tcp_dsn, f"latency_{number}", f"latency_{number}"),
        log=LogConfig(str(folder / "log")),
        lake=replace(LakeConfig(str(folder / "lake")), deletion_vectors=True),
    )


def _table(number: int, of: int) -> str:
    return f"l{number}_{of}"


def _measure(
    spark: SparkSession, config: Config, name: str, tables: int, rows: int, options: argparse.Namespace
) -> float:
    """Print p50 and p99; returns the worse of them to its bar."""
    number = config.source.slot.partition("_")[2]
    names = [_table(int(number), of) for of in range(tables)]
    with land.capture(config) as connect:
        connect.set()
        with land.pipeline(spark, config) as streaming:
            context = multiprocessing.get_context("spawn")
            chosen: Any = context.Queue()
            arguments = (config.source.dsn, names, rows, options.rate, options.seconds + _WARM_S, chosen)
            writer = context.Process(target=_write, args=arguments)
            writer.start()
            order = chosen.get()
            writer.join()
            log = ChangeLog.open(config.log.path)

            def arrived() -> bool:
                log.refresh()
                return bool(log.transactions(log.start_lsn, log.last_end_lsn).num_rows >= len(order))

            land.await_that(arrived, streaming)
            ends = log.transactions(log.start_lsn, log.last_end_lsn)["end_lsn"].to_pylist()
            for table, end in dict(zip(order, ends, strict=True)).items():  # where each table's last one ends
                sink = Target.of(config, "public", table).sink()
                land.await_that(land.Arrivals(sink, LSN(end)).complete, streaming)
            captured, seconds = _latencies(config, log, order)
    p50, p99 = (float(np.quantile(seconds, q)) for q in (0.5, 0.99))
    print(
        f"{name:10} {len(seconds)} transactions: p50 {p50:.2f} s (bar {BARS[name]}), p99 {p99:.2f} s;"
        f" p50 until it was in the change log {np.quantile(captured, 0.5):.2f} s",
        flush=True,
    )
    return max(p50 / BARS[name], p99 / (TAIL * p50))


def _write(dsn: str, names: Sequence[str], rows: int, rate: float, seconds: float, chosen: Any) -> None:
    """Update a row of one of the tables in each transaction, and tell which, in the order of their commits."""
    order: list[str] = []
    rng = random.Random(1)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET synchronous_commit TO on")  # the test server's default is off, and decoding waits
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if (due := began + len(order) / rate) > now:
                time.sleep(due - now)
            order.append(rng.choice(names))
            connection.execute(f"UPDATE {order[-1]} SET n = n + 1 WHERE id = %s".encode(), [rng.randint(1, rows)])
    chosen.put(order)


def _latencies(config: Config, log: ChangeLog, order: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds from each transaction's commit until the change log, and until its table had it, without those of the
    first seconds."""
    found = log.transactions(log.start_lsn, log.last_end_lsn)
    rows = found.select(["end_lsn", "commit_ts", "last_seq"]).to_pylist()
    assert len(rows) == len(order), "nobody else writes"
    arrivals = {name: _arrivals(config, name) for name in set(order)}
    published = {segment.seq: log.storage.modified(segment.name) for segment in log.segments}
    captured, latencies = [], []
    for name, row in zip(order, rows, strict=True):
        if row["commit_ts"] - rows[0]["commit_ts"] < _WARM_S * 1e6:
            continue
        lsns, times = arrivals[name]
        committed = EPOCH_S + row["commit_ts"] / 1e6
        captured.append(published[row["last_seq"]] - committed)
        latencies.append(times[int(np.searchsorted(lsns, row["end_lsn"]))] - committed)
    return captured, latencies


def _arrivals(config: Config, name: str) -> tuple[list[int], list[float]]:
    """The LSNs at which the table's commits stand, rising, and when each could be read, in Unix seconds."""
    lsns, times = [], []
    folder = Path(Target.of(config, "public", name).sink().uri) / "_delta_log"
    for path in sorted(folder.glob("*.json")):
        for line in path.read_text().splitlines():
            transaction = json.loads(line).get("txn", {})
            if transaction.get("appId") == f"wal2lake:{config.pipeline.name}":
                lsns.append(transaction["version"])
                times.append(path.stat().st_mtime)
    return lsns, times
