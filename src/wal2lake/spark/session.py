"""The Spark session: our defaults, then the user's [spark] settings over them, which always win."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from wal2lake.config import Config
from wal2lake.errors import SparkError
from wal2lake.spark.java import find_java

_LOG4J = Path(__file__).with_name("log4j2.properties")


def build_session(config: Config) -> SparkSession:
    """Start a session, or return the one that runs, with ``session_settings(config)``.

    Workers run this interpreter unless [spark] names another (``pyspark.python``). Raises SparkError when no Java
    fits or Spark does not start.
    """
    settings = session_settings(config)
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java())
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise SparkError(
            f"Spark did not start: {error}.", hint="What Java printed above says why; see also [spark]."
        ) from error


def running_session() -> SparkSession | None:
    """The session of this process, if there is one; ``getActiveSession`` knows only what its own thread began."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def session_settings(config: Config) -> dict[str, str]:
    """Every setting the session is built with: the defaults for its master, overridden by [spark]."""
    master = config.spark.get("spark.master", "local[*,4]")  # ,4: a failed task is tried again
    return {"spark.master": master, **_DEFAULTS, **(_local() if _is_local(master) else {}), **config.spark}


_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "wal2lake",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _local() -> dict[str, str]:
    """One machine: loopback only, few shuffle partitions, and checkpoints by plain rename, which is quicker."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.streaming.checkpointFileManagerClass": _checkpoint_manager(),
    }


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _checkpoint_manager() -> str:
    """Spark 4.1 moved the class to a package of its own."""
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"
