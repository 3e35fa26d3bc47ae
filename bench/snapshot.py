"""snapshot: a 1.5 M-row table into Delta by Spark tasks (session up already), against psql's COPY binary to /dev/null.

Ours is all of it: waiting for writers, the keeper, the chunks, the durable chunk files and the Delta commit.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import common
from wal2lake.config import Config, LakeConfig, LogConfig, PipelineConfig, SourceConfig
from wal2lake.pipeline.interrupts import Interrupts
from wal2lake.pipeline.snapshots import Snapshots
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.connection import connect
from wal2lake.spark.pipeline import SparkJobs
from wal2lake.spark.session import build_session
from wal2lake.tables.table import Tables
from wal2lake.tables.target import Target
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 0.2
ROUNDS = 5
_START_LSN = 1 << 20


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met."""
    parser = argparse.ArgumentParser(prog="python -m bench snapshot", description=__doc__)
    parser.add_argument("--rows", type=int, default=common.CHANGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--chunk-bytes", type=int, default=PipelineConfig.snapshot_chunk_bytes)
    options = parser.parse_args(argv)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        common.insert_rows(postgres, options.rows)
        postgres.psql(f"VACUUM (FREEZE, ANALYZE) {common.TABLE}; CHECKPOINT")
        spark = build_session(Config())
        try:
            ours = _ours(postgres, spark, Path(folder), options)
            medians = common.alternate({"wal2lake": ours, "psql": _psql(postgres, options.rows)}, options.rounds)
        finally:
            spark.stop()
    return common.verdict(medians, BAR)


def _ours(
    postgres: EmbeddedPostgres, spark: SparkSession, folder: Path, options: argparse.Namespace
) -> Callable[[], float]:
    """Each call reads the table into a new lake and tells the rows per second."""
    turns = iter(range(1_000))

    def measure() -> float:
        config = _config(postgres.tcp_dsn, folder / str(next(turns)), options.chunk_bytes)
        snapshots = Snapshots(config, SparkJobs(spark), Tables(config), _START_LSN, Interrupts(Event()))
        with connect(postgres.tcp_dsn) as connection:
            tables = published_tables(connection, common.PUBLICATION)
        seconds = common.timed(lambda: snapshots.take(tables))
        arrived = _count(Target.of(config, tables[0].namespace, tables[0].name).sink().uri)
        assert arrived == options.rows, f"{arrived} rows arrived"
        return float(options.rows / seconds)

    return measure


def _config(dsn: str, folder: Path, chunk_bytes: int) -> Config:
    return Config(
        source=SourceConfig(dsn=dsn, publication=common.PUBLICATION),
        log=LogConfig(path=str(folder / "log")),
        lake=LakeConfig(path=str(folder / "lake")),
        pipeline=PipelineConfig(snapshot_chunk_bytes=chunk_bytes),
    )


def _count(uri: str) -> int:
    """The rows of a Delta table, by its log."""
    return int(sum(pa.table(DeltaTable(uri).get_add_actions(flatten=True))["num_records"].to_pylist()))


def _psql(postgres: EmbeddedPostgres, rows: int) -> Callable[[], float]:
    """Each call copies the table to /dev/null and tells the rows per second."""
    copy = f"COPY {common.TABLE} TO STDOUT (FORMAT binary)"
    arguments = ("-X", "-q", "-d", postgres.tcp_dsn)

    def work() -> None:
        postgres.run_program("psql", *arguments, "-c", copy, "-o", "/dev/null")

    return lambda: rows / common.timed(work)
