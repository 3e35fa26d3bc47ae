"""catch-up: 3 M changes of a log into a Delta table by the pipeline, against Spark's own Parquet to Parquet.

The baseline reads the same rows, as the pipeline has written them, and writes them anew, in the same session: nothing
is decoded, no transaction kept apart. Ours is all that `wal2lake pipeline --available-now` does once a session is up.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
import threading
import time
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import common
from bench.capture import ORIGIN, committed_end
from bench.land import prepared
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.spark.pipeline import run_pipeline
from wal2lake.spark.session import build_session
from wal2lake.tables.target import Target
from wal2lake.testing.embedded import EmbeddedPostgres

BAR = 1.0
CHANGES = 3_000_000


def main(argv: list[str]) -> int:
    """Run the benchmark; 0 if the bar is met."""
    parser = argparse.ArgumentParser(prog="python -m bench catch-up", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    logging.getLogger("wal2lake").setLevel(logging.ERROR)
    spark = build_session(Config())
    try:
        with common.server() as postgres, tempfile.TemporaryDirectory(prefix="wal2lake-bench-") as folder:
            rounds = _captured(postgres, Path(folder), given.changes, given.rounds + 1)
            rows = Path(folder) / "rows.parquet"
            _caught_up(rounds[0], given.changes)  # the warm-up of the workers, and the baseline's rows
            spark.read.parquet(*DeltaTable(_uri(rounds[0])).file_uris()).write.parquet(str(rows))
            turns = iter(rounds[1:])
            rates = {
                "wal2lake": lambda: given.changes / common.timed(lambda: _caught_up(next(turns), given.changes)),
                "Parquet to Parquet": lambda: given.changes / _rewritten(spark, rows, given.changes),
            }
            return common.verdict(common.alternate(rates, given.rounds), BAR)
    finally:
        spark.stop()


def _captured(postgres: EmbeddedPostgres, folder: Path, changes: int, rounds: int) -> list[Config]:
    """As many pipelines, each with an empty table and a log that has all changes."""
    common.create_table(postgres)
    common.create_slot(postgres, ORIGIN)
    configs = [prepared(postgres, folder / str(turn), turn) for turn in range(rounds)]
    common.insert_rows(postgres, changes)
    end = committed_end(postgres)
    for config in configs:
        _capture(config, end)
    return configs


def _capture(config: Config, end: str) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=Capture(config).run, args=(stop,))
    thread.start()
    log = ChangeLog.open(config.log.path)
    while thread.is_alive() and str(log.last_end_lsn) != end:
        time.sleep(0.05)
        log.refresh()
    stop.set()
    thread.join()
    assert str(log.last_end_lsn) == end, "capture ended early"


def _uri(config: Config) -> str:
    return Target.of(config, *common.TABLE.split(".")).sink().uri


def _caught_up(config: Config, changes: int) -> None:
    run_pipeline(config, available_now=True)
    arrived = Target.of(config, *common.TABLE.split(".")).sink().count_rows()
    assert arrived == changes, f"{arrived} rows arrived"


def _rewritten(spark: SparkSession, rows: Path, changes: int) -> float:
    target = str(rows.with_suffix(".again"))
    seconds = common.timed(lambda: spark.read.parquet(str(rows)).write.parquet(target))
    assert spark.read.parquet(target).count() == changes
    shutil.rmtree(target)
    return seconds
