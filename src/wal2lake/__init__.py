"""wal2lake: PostgreSQL logical replication in Python, landed in lakehouse tables through Spark."""

__version__ = "0.1.0"
