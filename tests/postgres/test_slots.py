"""Slots as the server has them."""

from __future__ import annotations

import pytest

from wal2lake.errors import ConfigError, SlotMissingError
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.slots import (
    create_physical_slot,
    create_slot,
    drop_slot,
    require_slot,
    slot_state,
    slot_states,
)
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def test_a_slot_from_birth_to_death(server: EmbeddedPostgres) -> None:
    with replication_connection(server.dsn) as pgconn, connect(server.dsn) as connection:
        created = create_slot(pgconn, "whole_life", two_phase=True, failover=True)
        state = require_slot(connection, "whole_life")
        assert (state.plugin, state.slot_type, state.database) == ("pgoutput", "logical", "postgres")
        assert (state.two_phase, state.failover, state.temporary, state.lost) == (True, True, False, False)
        assert state.restart_lsn is not None and state.restart_lsn <= created.consistent_point
        drop_slot(pgconn, "whole_life", wait=True)
        assert slot_state(connection, "whole_life") is None
        with pytest.raises(SlotMissingError):
            require_slot(connection, "whole_life")


def test_the_exported_snapshot_can_be_imported(server: EmbeddedPostgres) -> None:
    with replication_connection(server.dsn) as pgconn, connect(server.dsn) as connection:
        created = create_slot(pgconn, "exporting", temporary=True, snapshot="export")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{created.snapshot_name}'".encode())
        connection.execute("ROLLBACK")


def test_a_physical_slot_reserves_wal_when_told(server: EmbeddedPostgres) -> None:
    with replication_connection(server.dsn, physical=True) as pgconn, connect(server.dsn) as connection:
        create_physical_slot(pgconn, "keeps_wal", temporary=True, reserve_wal=True)
        create_physical_slot(pgconn, "keeps_none", temporary=True)
        states = {state.slot_name: state for state in slot_states(connection)}
        assert states["keeps_wal"].restart_lsn
        assert states["keeps_none"].restart_lsn is None
        assert states["keeps_none"].plugin is None


def test_a_name_that_cannot_be(server: EmbeddedPostgres) -> None:
    with replication_connection(server.dsn) as pgconn, pytest.raises(ConfigError):
        create_slot(pgconn, "Not-a-slot")
