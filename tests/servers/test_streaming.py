"""Captured before its commit or not, as the server knows how: what is prepared is published by COMMIT PREPARED."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.capture.conftest import World
from wal2lake.capture import Capture
from wal2lake.changelog.dump import verify_log
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

PREPARED = """
BEGIN; INSERT INTO {0} SELECT g, 'v' || g FROM generate_series({1}, {1} + 2000) g; SAVEPOINT a;
INSERT INTO {0} SELECT g, 'gone' FROM generate_series({1} + 5000, {1} + 7000) g; ROLLBACK TO a;
UPDATE {0} SET v = NULL WHERE id = {1}; PREPARE TRANSACTION '{0} {1}'
"""


def test_prepared_transactions_are_captured(versioned: EmbeddedPostgres, tmp_path: Path) -> None:
    world = World(versioned, tmp_path / "log")
    world.setup()
    try:
        world.make_slots()
        config = replace(world.config, source=replace(world.config.source, streaming=True))
        with world.capturing(Capture(config)):
            for first in (10_000, 20_000, 30_000):
                versioned.psql(PREPARED.format(world.name, first))
            world.await_durable(world.insert(1, 10))
            world.sql(f"COMMIT PREPARED '{world.name} 20000'")
            world.sql(f"ROLLBACK PREPARED '{world.name} 10000'")
            world.await_durable(world.wal_end())
        with world.capturing(Capture(config)):
            world.sql(f"COMMIT PREPARED '{world.name} 30000'")
            world.await_durable(world.wal_end())
        assert world.errors == []
        assert world.captured_changes() == world.expected_changes()
        assert len(world.captured_changes()) == 10 + 2 * 2002
        knows_how = int(world.sql("SHOW server_version_num")[0][0]) >= 140000
        assert any(segment.streamed for segment in world.log.segments) == knows_how
        assert list(verify_log(world.log.storage)) == []
    finally:
        world.teardown()
