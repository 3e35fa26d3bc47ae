"""Slots, identity and refusals on every version: what a version does not know is refused before it is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wal2lake.errors import (
    RightsError,
    ServerConfigError,
    ServerError,
    SlotExistsError,
    SlotMissingError,
    Wal2LakeError,
)
from wal2lake.lsn import LSN
from wal2lake.postgres.catalog import identify, published_tables
from wal2lake.postgres.connection import connect, execute, replication_connection
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.preflight import preflight
from wal2lake.postgres.slots import (
    advance_slot,
    alter_slot,
    copy_slot,
    create_physical_slot,
    create_slot,
    drop_slot,
    read_slot,
    require_slot,
    slot_state,
)
from wal2lake.postgres.snapshot import SnapshotKeeper, copy_binary
from wal2lake.postgres.system import show, timeline_history, wal_segment_size
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers


def known_since(pgconn: PGconn, since: int, action: Callable[[], object]) -> bool:
    """Do ``action`` where the server's version is ``since`` or later; elsewhere it must be refused unsent."""
    if pgconn.server_version >= since * 10000:
        action()
        return True
    with pytest.raises(ServerConfigError, match="does not know"):
        action()
    return False


def test_logical_slots(versioned: EmbeddedPostgres) -> None:
    with replication_connection(versioned.dsn) as pgconn, connect(versioned.dsn) as connection:
        created = create_slot(pgconn, "logical", plugin="test_decoding", snapshot="export")
        assert created.snapshot_name
        copy_slot(connection, "logical", "copied")
        assert require_slot(connection, "copied").plugin == "test_decoding"
        end = LSN.parse(versioned.psql("CREATE TABLE IF NOT EXISTS slots (); SELECT pg_current_wal_flush_lsn()"))
        assert advance_slot(connection, "copied", end) == end
        assert require_slot(connection, "copied").confirmed_flush_lsn == end
        if known_since(pgconn, 17, lambda: alter_slot(pgconn, "copied", failover=True)):
            assert require_slot(connection, "copied").failover is True
        if known_since(pgconn, 18, lambda: alter_slot(pgconn, "copied", two_phase=True)):
            assert require_slot(connection, "copied").two_phase is True
        if known_since(pgconn, 15, lambda: create_slot(pgconn, "prepared", two_phase=True)):
            assert require_slot(connection, "prepared").two_phase is True
            drop_slot(pgconn, "prepared")
        if known_since(pgconn, 17, lambda: create_slot(pgconn, "failing_over", failover=True)):
            drop_slot(pgconn, "failing_over")
        for name in ("logical", "copied"):
            drop_slot(pgconn, name)
        with pytest.raises(SlotMissingError):
            copy_slot(connection, "logical", "copied")
        with pytest.raises(SlotMissingError):
            advance_slot(connection, "logical", end)


def test_physical_slots(versioned: EmbeddedPostgres) -> None:
    with replication_connection(versioned.dsn, physical=True) as pgconn, connect(versioned.dsn) as connection:
        create_physical_slot(pgconn, "physical", reserve_wal=True)
        state = require_slot(connection, "physical")
        assert (state.slot_type, state.plugin) == ("physical", None)
        if known_since(pgconn, 15, lambda: read_slot(pgconn, "physical")):
            read = read_slot(pgconn, "physical")
            assert read is not None
            assert (read.restart_lsn, read.restart_tli) == (state.restart_lsn, 1)
            assert read_slot(pgconn, "absent") is None
        assert copy_slot(connection, "physical", "physical_copy") == state.restart_lsn
        drop_slot(pgconn, "physical")
        drop_slot(pgconn, "physical_copy")
        assert slot_state(connection, "physical") is None


def test_identity_and_settings(versioned: EmbeddedPostgres) -> None:
    for physical in (True, False):
        with replication_connection(versioned.dsn, physical=physical) as pgconn:
            identity = identify(pgconn)
            assert (identity.timeline, identity.dbname) == (1, None if physical else "postgres")
            assert wal_segment_size(pgconn) == 16 << 20
            assert show(pgconn, "wal_level") == "logical"
            with pytest.raises(ServerError):
                show(pgconn, "absent")
            with pytest.raises(Wal2LakeError):
                timeline_history(pgconn, 99)
            assert identify(pgconn).system_id == identity.system_id


def test_sql_on_a_logical_connection_only(versioned: EmbeddedPostgres) -> None:
    with replication_connection(versioned.dsn) as pgconn:
        assert execute(pgconn, "SELECT count(*), NULL FROM pg_class WHERE relname = 'pg_class'") == [("1", None)]
    with replication_connection(versioned.dsn, physical=True) as pgconn, pytest.raises(Wal2LakeError):
        execute(pgconn, "SELECT 1")


def test_a_role_without_replication(versioned: EmbeddedPostgres) -> None:
    versioned.psql("DROP ROLE IF EXISTS powerless; CREATE ROLE powerless LOGIN")
    dsn = versioned.dsn.replace("user=postgres", "user=powerless")
    with pytest.raises(RightsError, match="ALTER ROLE"), replication_connection(dsn):
        pass
    errors = {finding.name for finding in preflight(dsn, "absent", "absent") if finding.level == "error"}
    assert errors == {"replication", "publication"}


def test_catalog_and_snapshot(versioned: EmbeddedPostgres) -> None:
    versioned.psql(
        """
        DROP TABLE IF EXISTS snapped; DROP PUBLICATION IF EXISTS snapped;
        CREATE TABLE snapped (a int PRIMARY KEY, b text);
        INSERT INTO snapped SELECT g, 'x' FROM generate_series(1, 1000) g;
        CREATE PUBLICATION snapped FOR TABLE snapped;
        """
    )
    with connect(versioned.dsn, writable=True) as connection:
        (table,) = published_tables(connection, "snapped")
        half = table.blocks // 2
        with SnapshotKeeper(versioned.dsn) as keeper:
            connection.execute("DELETE FROM public.snapped")
            chunks = [(0, half), (half, None)]
            read = [copy_binary(versioned.dsn, keeper.identity.name, table, table.columns, *chunk) for chunk in chunks]
            keys = [int.from_bytes(row[6:10]) for batches in read for batch in batches for row in batch.payloads]
    assert sorted(keys) == list(range(1, 1001))
    assert [column.key for column in table.columns] == [True, False]


def test_refusals_leave_the_connection_usable(versioned: EmbeddedPostgres) -> None:
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "twice")
        with pytest.raises(SlotExistsError, match="42710"):
            create_slot(pgconn, "twice")
        with pytest.raises(Wal2LakeError):
            create_slot(pgconn, "no_plugin", plugin="absent")
        drop_slot(pgconn, "twice")


AWKWARD = {
    "DateStyle": "German", "TimeZone": "Asia/Kolkata", "IntervalStyle": "iso_8601", "bytea_output": "escape",
    "extra_float_digits": "-5", "quote_all_identifiers": "on", "standard_conforming_strings": "off",
    "search_path": "public, pg_catalog", "client_encoding": "LATIN1", "client_min_messages": "error",
}  # fmt: skip
_STATE = """
SELECT date '2026-11-21'::text, now()::text LIKE '%+00', interval '1 day'::text, '\\x41'::bytea::text,
       0.1::float8::float4::text, format_type('refcursor'::regtype, -1), quote_ident('a'), current_schemas(true)::text,
       current_setting('client_encoding'), current_setting('client_min_messages')
"""


def _set(value: str) -> str:
    return ", ".join(f"'{part.strip()}'" for part in value.split(","))


def test_connections(versioned: EmbeddedPostgres) -> None:
    """The session's state is the same whatever the database says."""

    def states() -> list[object]:
        with connect(versioned.dsn) as connection, replication_connection(versioned.dsn) as pgconn:
            return [connection.execute(_STATE.encode()).fetchone(), *execute(pgconn, _STATE)]

    sane = states()
    versioned.psql("".join(f"ALTER DATABASE postgres SET {name} = {_set(value)};" for name, value in AWKWARD.items()))
    try:
        assert states() == sane
    finally:
        versioned.psql("".join(f"ALTER DATABASE postgres RESET {name};" for name in AWKWARD))
