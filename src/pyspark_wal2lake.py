"""Spark looks for data sources in modules named pyspark_*, and registers their DefaultSource by itself."""

from wal2lake.spark.source import DefaultSource

__all__ = ["DefaultSource"]
