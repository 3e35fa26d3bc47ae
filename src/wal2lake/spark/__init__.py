"""Spark is a shell: thin data source classes over functions that run, and are tested, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format ``wal2lake`` known to ``spark``, where Spark's own discovery does not find pyspark_wal2lake."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - plain functions here need no pyspark

    from wal2lake.spark.source import DefaultSource  # noqa: PLC0415

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):  # Spark 4.0 refuses what it has discovered itself
            raise
