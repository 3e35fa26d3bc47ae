"""One server serves all tests; each test uses its own schema, publication, slot and folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import jvm
from wal2lake.config import Config
from wal2lake.testing.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3 import S3Server


os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm.options())
os.environ["WAL2LAKE_TEST_SECRET"] = "nobody-may-read-this"  # of the object store; Spark passes it on as it starts

# Nothing here is a test of speed: a busy machine must not fail a property that holds.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones first: of two processes, neither is left alone with one of them at the end."""
    if "formats" not in str(config.getoption("markexpr")):
        left_out = [item for item in items if item.get_closest_marker("formats") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL 18 with logical WAL."""
    with EmbeddedPostgres(settings={"max_replication_slots": "50", "max_wal_senders": "50"}) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark as the pipeline starts it: two cores, failed tasks tried again."""
    from wal2lake.spark.session import build_session

    session = build_session(Config(spark={"spark.master": "local[2,4]"}))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An object store with a bucket; each test uses a prefix of its own."""
    from tests.s3 import S3Server

    server = S3Server()
    yield server
    server.close()
