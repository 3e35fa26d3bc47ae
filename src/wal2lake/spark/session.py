"""The Spark session: our defaults, then the user's [spark] settings over them, which always win."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from wal2lake.config import Config
from wal2lake.errors import SparkError
from wal2lake.spark.gateway import start_jvm
from wal2lake.spark.java import find_java

_LOG4J = Path(__file__).with_name("log4j2.properties")


def build_session(config: Config) -> SparkSession:
    """Start a session, or return the one that runs, with ``session_settings(config)``.

    Workers run what [spark] names (``pyspark.python``), or PYSPARK_PYTHON, or else this interpreter: Spark itself would
    take the PATH's, where wal2lake need not be. Raises SparkError when no Java fits or Spark does not start, and
    InterruptedByUser at a signal while Java starts.
    """
    settings = session_settings(config)
    os.environ["PYSPARK_PYTHON"] = workers_python(settings)
    os.environ["JAVA_HOME"] = str(find_java())
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        start_jvm(settings)
        with _keeping_sigint_handler():
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkError(
            f"Spark did not start: {error}.", hint="What Java printed above says why; see also [spark]."
        ) from error


def workers_python(settings: Mapping[str, str]) -> str:
    """The interpreter that Spark starts, for sources and tasks alike; on this machine by way of worker.py."""
    named = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    worker = Path(sys.executable).with_name("wal2lake-worker")
    installed = ".zip" not in pyspark.__file__ and worker.is_file()
    local = is_local(settings.get("spark.master", ""))
    return named or (str(worker) if installed and local else sys.executable)


@contextlib.contextmanager
def _keeping_sigint_handler() -> Iterator[None]:
    """Spark takes SIGINT for itself when its context begins in the main thread; who had a handler of their own keeps
    it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        ours = handler not in (None, signal.default_int_handler)
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def running_session() -> SparkSession | None:
    """The session of this process, if there is one; ``getActiveSession`` knows only what its own thread began."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def session_settings(config: Config) -> dict[str, str]:
    """Every setting the session is built with: the defaults for its master, overridden by [spark]."""
    master = config.spark.get("spark.master", "local[*,4]")  # ,4: a failed task is tried again
    return {"spark.master": master, **_DEFAULTS, **(_local() if is_local(master) else {}), **config.spark}


def is_local(master: str) -> bool:
    """Whether Spark runs on this machine alone."""
    return master == "local" or master.startswith("local[")


_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "wal2lake",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _local() -> dict[str, str]:
    """One machine: loopback only, few shuffle partitions, and checkpoints by plain rename, which is quicker."""
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"  # Spark 4.1 moved the class there
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.streaming.checkpointFileManagerClass": f"{package}.FileSystemBasedCheckpointFileManager",
    }
