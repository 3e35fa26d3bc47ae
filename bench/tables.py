"""A batch of two changes in each of many small tables, against delta-rs that appends one row to each of the same.

CPU seconds of all processes that do it: the driver, Java and Spark's Python workers, without the server. The batches
are planned and applied as the pipeline does it, durably, from a log that was captured before; each table has a hundred
rows, and every batch updates one and inserts another. delta-rs appends to copies of the tables' folders as they are
then. By turns; the medians count, the ratio is ours to delta-rs's. The first batch, which asks the server what was
announced and opens what is opened once, is shown and does not count.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench import common
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.lsn import LSN
from wal2lake.pipeline.batches import Batches
from wal2lake.pipeline.engine import Jobs
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.spark.pipeline import SparkJobs
from wal2lake.spark.session import build_session
from wal2lake.tables.table import Tables
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.5
_ROWS = 100
_PATIENCE_S = 120.0


def main(argv: list[str]) -> int:
    """`python -m bench tables [--tables N] [--rounds N]`."""
    parser = argparse.ArgumentParser(prog="python -m bench tables", description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        config = _config(postgres, Path(folder))
        names = _create(postgres, options.tables)
        with _capturing(config) as log:
            spark = build_session(config)
            try:
                batches = _copied(config, SparkJobs(spark), log)
                ends = [_change(postgres, log, names, turn) for turn in range(options.rounds + 1)]
                return _measure(batches, config, names, [int(log.start_lsn), *ends])
            finally:
                spark.stop()


def _config(postgres: EmbeddedPostgres, folder: Path) -> Config:
    return Config(
        source=SourceConfig(postgres.tcp_dsn, common.PUBLICATION, "tables"),
        log=LogConfig(str(folder / "log")),
        lake=LakeConfig(str(folder / "lake")),
    )


def _create(postgres: EmbeddedPostgres, tables: int) -> list[str]:
    names = [f"t{number:03}" for number in range(tables)]
    statements = [
        f"CREATE TABLE {name} (id int PRIMARY KEY, n bigint, price numeric(12,2), made timestamptz, note text);"
        f"INSERT INTO {name} SELECT i, 0, i / 7.0, now(), 'note ' || i FROM generate_series(1, {_ROWS}) AS i"
        for name in names
    ]
    published = f"CREATE PUBLICATION {common.PUBLICATION} FOR TABLE {', '.join(names)}"
    postgres.psql("; ".join([*statements, published]))
    return names


@contextmanager
def _capturing(config: Config) -> Iterator[ChangeLog]:
    stop = threading.Event()
    thread = threading.Thread(target=Capture(config).run, args=(stop,))
    thread.start()
    try:
        await_that(lambda: ChangeLog.exists(config.log.path))
        yield ChangeLog.open(config.log.path)
    finally:
        stop.set()
        thread.join()


def await_that(condition: Callable[[], bool]) -> None:
    """Look every 50 ms; fails when patience ends."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not get there"
        time.sleep(0.05)


def _copied(config: Config, jobs: Jobs, log: ChangeLog) -> Batches:
    """The pipeline's batches, its tables read into the lake."""
    tables = Tables(config)
    snapshots = Snapshots(config, jobs, tables, log.start_lsn, Interrupts(threading.Event()))
    batches = Batches(config, jobs, log, tables, snapshots)
    seconds = common.timed(lambda: batches.discover(log.start_lsn))
    batches.require_none_quarantined()
    print(f"snapshot of {len(list(tables))} tables: {seconds:.1f} s", flush=True)
    return batches


def _change(postgres: EmbeddedPostgres, log: ChangeLog, names: Sequence[str], turn: int) -> LSN:
    """Two changes of each table, each table's a transaction; returns where the last one ends."""
    before = log.last_end_lsn
    postgres.psql(
        "".join(
            f"BEGIN; UPDATE {name} SET n = n + 1, note = 'updated' WHERE id = {turn + 1};"
            f"INSERT INTO {name} VALUES ({_ROWS + 1 + turn}, {turn}, 1.5, now(), 'inserted'); COMMIT;"
            for name in names
        )
    )

    def arrived() -> bool:
        log.refresh()
        return bool(log.transactions(before, log.last_end_lsn).num_rows == len(names))

    await_that(arrived)
    return log.last_end_lsn


def _measure(batches: Batches, config: Config, names: Sequence[str], ends: Sequence[int]) -> int:
    ours: list[float] = []
    theirs: list[float] = []
    for turn, (start, end) in enumerate(pairwise(ends)):
        began = time.perf_counter()
        ours.append(_cpu_s(lambda start=start, end=end: batches.apply(start, end)))  # type: ignore[misc]
        seconds = time.perf_counter() - began
        batches.require_none_quarantined()
        copies = _copies(config, names)
        theirs.append(_cpu_s(lambda copies=copies: _append(copies)))  # type: ignore[misc]
        print(f"batch {turn}: {ours[-1]:.2f} CPU s, {seconds:.2f} s; delta-rs {theirs[-1]:.2f} CPU s", flush=True)
    for name in names:
        rows = DeltaTable(f"{config.lake.path}/public/{name}").to_pyarrow_table()
        assert rows.num_rows == _ROWS + len(ends) - 1 and sum(rows["n"].to_pylist()) == sum(range(len(ends))), name
    mine, other = (statistics.median(seconds[1:]) for seconds in (ours, theirs))
    print(f"median: wal2lake {mine:.2f} CPU s, delta-rs {other:.2f} CPU s")
    print(f"ratio: {mine / other:.2f} (bar at most {BAR})")
    return 0 if mine / other <= BAR else 1


def _copies(config: Config, names: Sequence[str]) -> dict[Path, pa.Table]:
    """The tables' folders as they are, once more, and a row for each."""
    lake, copies = Path(config.lake.path), {}
    for name in names:
        copy = lake.with_name("copies") / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(lake / "public" / name, copy)
        rows = pa.schema(DeltaTable(copy).schema())
        copies[copy] = pa.Table.from_pylist([{"id": -1, "n": 1, "note": "appended"}], rows)
    return copies


def _append(copies: Mapping[Path, pa.Table]) -> None:
    for copy, row in copies.items():
        write_deltalake(copy, row, mode="append")


def _cpu_s(work: Callable[[], object]) -> float:
    before = _used_s()
    work()
    return _used_s() - before


def _used_s() -> float:
    """CPU seconds of this process and its children, without the server."""
    used = sum(os.times()[:2])
    for child in psutil.Process().children(recursive=True):
        if "postgres" not in child.name():
            used += sum(child.cpu_times()[:2])
    return used
