"""snapshot: a 3 M-row table into Delta by Spark tasks, against psql's COPY binary to /dev/null, and Spark's own JDBC.

Ours is all of it: waiting for writers, the keeper, the chunks, the durable chunk files and the Delta commit. JDBC is
read in four partitions with a large fetch size and written by delta-spark, in the same session, which is up already;
both jars come from Maven Central, so that `--without-jdbc` is there for a machine that cannot reach it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyspark
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict
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

BAR = 0.55
JDBC_BAR = 3.0
ROUNDS = 3
ROWS = 3_000_000
_JARS = ("org.postgresql:postgresql:42.7.4", "io.delta:delta-spark_{spark}_2.13:4.4.0")
_START_LSN = 1 << 20


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met."""
    parser = argparse.ArgumentParser(prog="python -m bench snapshot", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--chunk-bytes", type=int, default=PipelineConfig.snapshot_chunk_bytes)
    parser.add_argument("--without-jdbc", action="store_true", help="beside psql only")
    options = parser.parse_args(argv)
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        common.insert_rows(postgres, options.rows)
        postgres.psql(f"VACUUM (FREEZE, ANALYZE) {common.TABLE}; CHECKPOINT")
        spark = build_session(Config(spark={} if options.without_jdbc else _jdbc_settings()))
        contestants = {
            "wal2lake": _ours(postgres, spark, Path(folder), options),
            "psql": _psql(postgres, options.rows),
        }
        if not options.without_jdbc:
            contestants["JDBC"] = _jdbc(postgres, spark, Path(folder) / "jdbc", options.rows)
        try:
            medians = common.alternate(contestants, options.rounds)
        finally:
            spark.stop()
    return _judged(medians)


def _judged(medians: dict[str, float]) -> int:
    missed = 0
    if "JDBC" in medians:
        missed = common.judge("ratio to JDBC", medians["wal2lake"] / medians["JDBC"], JDBC_BAR)
    return common.verdict({name: medians[name] for name in ("wal2lake", "psql")}, BAR) or missed


def _jdbc_settings() -> dict[str, str]:
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return {
        "spark.jars.packages": ",".join(jar.format(spark=spark) for jar in _JARS),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _jdbc(postgres: EmbeddedPostgres, spark: SparkSession, folder: Path, rows: int) -> Callable[[], float]:
    """Each call reads the table by JDBC into a new Delta table and tells the rows per second."""
    dsn = conninfo_to_dict(postgres.tcp_dsn)
    options = {
        "url": f"jdbc:postgresql://{dsn['host']}:{dsn['port']}/{dsn['dbname']}",
        "user": str(dsn["user"]), "password": str(dsn["password"]),
        "dbtable": common.TABLE, "fetchsize": "20000", "driver": "org.postgresql.Driver",
        "partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": "4",
    }  # fmt: skip
    turns = iter(range(1_000))

    def measure() -> float:
        target = str(folder / str(next(turns)))
        read = spark.read.format("jdbc").options(**options).load()
        seconds = common.timed(lambda: read.write.format("delta").save(target))
        assert _count(target) == rows
        return rows / seconds

    return measure


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
