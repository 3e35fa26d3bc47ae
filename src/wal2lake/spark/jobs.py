"""One Spark job, one task per item; a Wal2LakeError raised in a task comes back as that very error, not as text.

An item is some table's, and its text names the table: an exception of any other kind becomes an error of ours that does
too. What fails the job, after Spark's retries, is the loss of a process.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from wal2lake.errors import Wal2LakeError
from wal2lake.pipeline.engine import Item, Result
from wal2lake.tables.failures import SparkLostError, WorkerLostError, errors_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = "item bigint, outcome binary"

# What Spark says of a Python process of its own that did not come up or went: nothing is wrong with the JVM then. A
# data source's process gets ten seconds to start, which no setting prolongs, and a starved machine may need more; to
# start Java again as well would starve it further. Source: PythonWorkerFactory, PythonRunner,
# PythonStreamingSourceRunner; error-conditions.json (Spark 4.0 to 4.2).
_WORKER_LOST = re.compile(
    "Python worker failed to connect back|waiting for the Python worker to connect back"
    "|Python worker exited unexpectedly|Python worker process terminated|reading the port number from"
    "|STREAMING_PYTHON_RUNNER_INITIALIZATION_(?:TIMEOUT|COMMUNICATION)_FAILURE"
    "|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"
)


def run_tasks(
    spark: SparkSession, task: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result | Wal2LakeError]:
    """Run ``task`` on executors for each item and give the outcomes in the items' order.

    ``task`` must be an importable function; items and results travel pickled between our own processes.
    Raises SparkLostError when the job itself fails.
    """
    if not items:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            outcomes = [pickle.dumps(attempt(task, items[number])) for number in numbers]
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers, pa.int64()), pa.array(outcomes, pa.binary())], ["item", "outcome"]
            )

    tasks = spark.range(0, len(items), 1, len(items)).mapInArrow(work, _SCHEMA)
    try:
        rows = sorted(tasks.collect(), key=lambda row: row["item"])
    except (PySparkException, Py4JError) as error:
        raise spark_lost(error) from error
    return [pickle.loads(row["outcome"]) for row in rows]  # noqa: S301 - written by our own task above


def attempt(task: Callable[[Item], Result], item: Item) -> Result | Wal2LakeError:
    """The task's result, or the error it raised; without a JVM, for tests and single items."""
    try:
        with errors_of(str(item)):
            return task(item)
    except Wal2LakeError as error:
        return error


def spark_lost(error: BaseException) -> SparkLostError:
    """The error for a job or query that Spark gave up, with the first line of what it says; or, where that is some way
    down, that a Python process did not start, or went."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    lost = next((line for line in lines if _WORKER_LOST.search(line)), None)
    kind = SparkLostError if lost is None else WorkerLostError
    return kind(
        f"Spark gave up: {lost or lines[0]}", hint="What it printed says more; the work goes on from where it was."
    )
