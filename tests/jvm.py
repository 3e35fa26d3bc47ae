"""`python -m tests.jvm`: an archive of the classes that Spark loads, with which a JVM starts in half the time.

Tests start dozens of JVMs, each for seconds: loading and compiling is most of what they do. `make test` makes the
archive once in the virtual environment; without it tests are slower and the same. It fits the very JVM and jars that
made it; any other JVM passes over it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"


def options() -> str:
    """What a test's JVM is started with (SPARK_SUBMIT_OPTS)."""
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else _SHORT_LIVED


def _exercise(spark: SparkSession) -> None:
    """Load what the tests' jobs load: a shuffle, Python workers, a stream."""
    spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().collect()
    spark.sparkContext.parallelize(range(4), 4).map(str).collect()
    rate = spark.readStream.format("rate").load()
    query = (
        rate.writeStream.foreachBatch(lambda rows, number: rows.collect()).trigger(processingTime="1 second").start()
    )
    eventually(lambda: query.lastProgress, alive=lambda: query.isActive)
    query.stop()


def main() -> None:
    from wal2lake.config import Config  # here, because conftest needs nothing of it
    from wal2lake.spark.session import build_session

    os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={ARCHIVE}"
    spark = build_session(Config())
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - pyspark has no public way to end its JVM
    _exercise(spark)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # what Spark's JVM waits for; it writes the archive as it ends
    gateway.proc.wait()


if __name__ == "__main__":
    main()
