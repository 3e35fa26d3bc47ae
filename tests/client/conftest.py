"""A published table, and a slot to read it by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.reading import NAME
from tests.waiting import eventually
from wal2lake.testing.embedded import EmbeddedPostgres


@pytest.fixture
def table(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A published table, and a slot of its time."""
    server.psql(
        f"CREATE TABLE {NAME} (id int PRIMARY KEY, v text, big text, hidden text);"
        f"ALTER TABLE {NAME} ALTER big SET STORAGE EXTERNAL; CREATE PUBLICATION {NAME} FOR TABLE {NAME} (id, v, big);"
        f"SELECT pg_create_logical_replication_slot('{NAME}', 'pgoutput')"
    )
    yield server
    server.psql(f"DROP TABLE {NAME}; DROP PUBLICATION {NAME}")
    server.psql(
        f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND slot_name = '{NAME}'"
    )
    eventually(lambda: server.psql(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{NAME}'") == "f")
    server.psql(f"SELECT pg_drop_replication_slot('{NAME}')")
