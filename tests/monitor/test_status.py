"""`status` shows what it can, whatever stands in the way of the rest."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from wal2lake.config import Config, LakeConfig, LogConfig, SourceConfig
from wal2lake.monitor.status import read_status
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def test_a_locked_table_does_not_hold_it_up(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.psql("CREATE TABLE locked (id int PRIMARY KEY); CREATE PUBLICATION locked FOR TABLE locked")
    server.psql("SELECT pg_create_logical_replication_slot('locked', 'pgoutput')")
    source = SourceConfig(server.dsn, "locked", "locked")
    config = Config(source, LogConfig(str(tmp_path / "log")), LakeConfig(str(tmp_path / "lake")))
    with psycopg.connect(server.dsn) as locking:
        locking.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        found = read_status(config)
    assert found.slot is not None
    assert found.server_wal_lsn is not None
    assert "cannot be listed now" in found.problems[0]
    assert read_status(config).applied == {"public.locked": None}
    server.psql("SELECT pg_drop_replication_slot('locked'); DROP TABLE locked; DROP PUBLICATION locked")
