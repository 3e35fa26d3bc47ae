"""A bytea whose text would be larger than PostgreSQL can hold comes in binary form, and what is behind it as always."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.conftest import World
from tests.waiting import eventually
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

_BYTES = 540_000_000


@pytest.mark.parametrize("versioned", [18], indirect=True)
def test_a_bytea_beyond_512_mb(versioned: EmbeddedPostgres, tmp_path: Path) -> None:
    """Half a minute of the server's, and 2 GB of memory for a moment; capturing takes as long again."""
    world = World(versioned, tmp_path / "log")
    world.setup()
    try:
        world.sql(f"ALTER TABLE {world.name} ADD large bytea")
        world.make_slots()
        world.insert(1, 1)
        world.sql(f"INSERT INTO {world.name} SELECT 2, 'v2', convert_to(repeat('x', {_BYTES}), 'UTF8')")
        world.insert(3, 3)
        end = world.wal_end()
        with world.capturing():  # the server puts the value together twice, which takes a minute where others work too
            eventually(lambda: world.durable() >= end, world.errors, timeout_s=800)
        assert world.errors == []
        inserts = [payload for payload in world.captured() if payload[:1] == b"I"]
        assert [payload[8:9] for payload in inserts] == [b"t", b"b", b"t"]
        assert inserts[1].endswith(b"b" + _BYTES.to_bytes(4) + b"x" * _BYTES)
    finally:
        world.teardown()
