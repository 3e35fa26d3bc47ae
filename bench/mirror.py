"""mirror: server → capture → log → Spark → a Delta mirror of 2 M rows, against `pg_recvlogical -f /dev/null` alone.

Both have the same backlog: eight of ten changes update a row anywhere in the table, one inserts, one deletes; once in
a few large transactions, once in many small ones. Each of our rounds has a slot, a log and a lake of its own, made
while the table still had its first rows. What is measured begins when capture connects, with its process, the Spark
session and the streaming query up and idle, and ends when the Delta table has the last transaction.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench import common
from bench.capture import ORIGIN, committed_end, recvlogical
from bench.land import Arrivals, await_that, capture, pipeline, prepared
from wal2lake.config import Config
from wal2lake.lsn import LSN
from wal2lake.spark.session import build_session
from wal2lake.tables.target import Target
from wal2lake.testing.embedded import EmbeddedPostgres

ROWS = 2_000_000
_STRIDE = 7919  # prime, so that the changed rows lie everywhere


@dataclass(frozen=True)
class Load:
    """So many changes in transactions of so many rows, and the bar of their ratio."""

    name: str
    changes: int
    rows: int
    bar: float


LOADS = (Load("large", 1_000_000, 250_000, 0.6), Load("small", 200_000, 10, 0.7))


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if both bars are met."""
    parser = argparse.ArgumentParser(prog="python -m bench mirror", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of the table (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[load.name for load in LOADS])
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    spark = build_session(Config())
    try:
        missed = [_measure(spark, load, given) for load in LOADS if given.only in (None, load.name)]
    finally:
        spark.stop()
    return int(any(missed))


def _measure(spark: SparkSession, load: Load, given: argparse.Namespace) -> int:
    with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
        common.create_table(postgres)
        common.insert_rows(postgres, given.rows)
        common.create_slot(postgres, ORIGIN)
        rounds = iter([prepared(postgres, Path(folder) / str(n), n, "mirror") for n in range(given.rounds)])
        change(postgres, load, given.rows)
        end, rows = committed_end(postgres), int(postgres.psql(f"SELECT count(*) FROM {common.TABLE}"))
        rates = {
            "wal2lake": lambda: load.changes / mirrored(spark, next(rounds), LSN.parse(end), rows),
            "pg_recvlogical": lambda: load.changes / recvlogical(postgres, end),
        }
        print(f"{load.name}: {load.changes:,} changes in transactions of {load.rows:,}", flush=True)
        medians = common.alternate(rates, given.rounds)
    ours, baseline = medians.values()
    return common.judge(f"ratio, {load.name} transactions", ours / baseline, load.bar)


def change(postgres: EmbeddedPostgres, load: Load, rows: int) -> None:
    """The changes; of each ten, eight update, one inserts behind the last row and one deletes a row of its own."""
    postgres.psql(f"""
        CREATE PROCEDURE change(first bigint, last bigint) LANGUAGE sql AS $$
            UPDATE {common.TABLE} SET note = 'changed ' || i, quantity = quantity + 1
                FROM generate_series(first, last) AS i WHERE i % 10 < 8 AND id = i * {_STRIDE} % {rows} + 1;
            INSERT INTO {common.TABLE} SELECT {common.ROWS.replace("i,", "i + 10000000,", 1)}
                FROM generate_series(first, last) AS i WHERE i % 10 = 8;
            DELETE FROM {common.TABLE} USING generate_series(first, last) AS i
                WHERE i % 10 = 9 AND id = i * {_STRIDE} % {rows} + 1;
        $$;
        DO $$ BEGIN FOR part IN 0 .. {load.changes // load.rows - 1} LOOP
            CALL change(part * {load.rows}::bigint, (part + 1) * {load.rows}::bigint - 1);
            COMMIT;
        END LOOP; END $$""")


def mirrored(spark: SparkSession, config: Config, end: LSN, rows: int) -> float:
    """Seconds from connecting to the server until the mirror has everything up to ``end``."""
    sink = Target.of(config, *common.TABLE.split(".")).sink()
    arrivals = Arrivals(sink, end)
    with pipeline(spark, config) as streaming, capture(config) as connect:
        began = time.perf_counter()
        connect.set()
        await_that(arrivals.complete, streaming)
        seconds = time.perf_counter() - began
    assert sink.count_rows() == rows, f"{sink.count_rows()} rows, not {rows}"
    return seconds
