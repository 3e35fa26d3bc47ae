"""One Spark job for many items; a Wal2LakeError raised for one comes back as that very error, not as text.

A task of Spark's costs some 50 ms whatever it does, so light items share one; but no more than so many, for all are
done again when their process is lost. Most of what a light one does is waiting, for a server or a disk: so a task does
some of its items at once, as long as not too many connections come of it.

An item is some table's, and its text names the table: an exception of any other kind becomes an error of ours that does
too. What fails the job, after Spark's retries, is the loss of a process.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from wal2lake.errors import Wal2LakeError
from wal2lake.pipeline.engine import Item, Result
from wal2lake.tables.failures import SparkLostError, WorkerLostError, errors_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACK_BYTES: Final = 32 << 20  # of items' weights
_LEAST_BYTES: Final = 256 << 10  # what an item counts as at least
_PACK_ITEMS: Final = 16
_AT_ONCE: Final = 4  # items of a pack,
_MOST_AT_ONCE: Final = 16  # and of all packs, unless there are more cores
_CALLING: Final = "An error occurred while calling"  # py4j's first line, which says nothing

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

    ``task`` must be an importable function; items and results travel pickled between our own processes, each item to
    where it is worked on and nowhere else. Raises SparkLostError when the job itself fails.
    """
    if not items:
        return []

    def work(pickled: bytes) -> bytes:
        own: list[Item] = pickle.loads(pickled)  # noqa: S301 - written by our own driver below
        if len(own) == 1 or at_once == 1:
            return pickle.dumps([attempt(task, item) for item in own])
        with ThreadPoolExecutor(at_once, "wal2lake item") as threads:
            return pickle.dumps(list(threads.map(partial(attempt, task), own)))

    context = spark.sparkContext
    at_once = items_at_once(context.defaultParallelism)
    packs = [pickle.dumps(pack) for pack in packed(items, context.defaultParallelism)]
    try:
        outcomes = context.parallelize(packs, len(packs)).map(work).collect()
    except (PySparkException, Py4JError) as error:
        raise spark_lost(error) from error
    return [result for pack in outcomes for result in pickle.loads(pack)]  # noqa: S301 - written by our own task above


def items_at_once(cores: int) -> int:
    """How many items of one pack are worked on at once."""
    return max(1, min(_AT_ONCE, _MOST_AT_ONCE // cores))


def packed(items: Sequence[Item], cores: int) -> list[list[Item]]:
    """The items, in order, in packs; as many as there are cores at least, where there are as many items."""
    weights = [max(getattr(item, "weight", _PACK_BYTES), _LEAST_BYTES) for item in items]
    most = min(_PACK_BYTES, -(-sum(weights) // cores))
    packs: list[list[Item]] = []
    size = most
    for item, weight in zip(items, weights, strict=True):
        if size + weight > most or len(packs[-1]) >= _PACK_ITEMS:
            packs.append([])
            size = 0
        packs[-1].append(item)
        size += weight
    return packs


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
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_CALLING)] or [type(error).__name__]
    lost = next((line for line in lines if _WORKER_LOST.search(line)), None)
    kind = SparkLostError if lost is None else WorkerLostError
    return kind(
        f"Spark gave up: {lost or lines[0]}", hint="What it printed says more; the work goes on from where it was."
    )
