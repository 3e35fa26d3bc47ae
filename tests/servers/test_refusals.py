"""What a server refuses of a slot is called what it is: only of a lost slot it is said that it must go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.waiting import eventually
from wal2lake.errors import ServerConfigError, SlotLostError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import connect, replication_connection, start
from wal2lake.postgres.exchange import PGconn
from wal2lake.postgres.slots import advance_slot, copy_slot, create_physical_slot, create_slot, drop_slot, read_slot
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.wire.commands import StartPhysicalReplication, start_replication_logical

pytestmark = pytest.mark.servers


@pytest.fixture
def slots(versioned: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """The server with a logical slot, and a physical one that reserves WAL."""
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "logical", plugin="test_decoding")
        create_physical_slot(pgconn, "physical", reserve_wal=True)
    yield versioned
    with replication_connection(versioned.dsn) as pgconn:
        drop_slot(pgconn, "logical")
        drop_slot(pgconn, "physical")


def refused(action: Callable[[], object], kind: type[Wal2LakeError]) -> str:
    with pytest.raises(Wal2LakeError) as raised:
        action()
    assert type(raised.value) is kind, raised.value
    return str(raised.value)


def start_logical(pgconn: PGconn, slot: str) -> Callable[[], object]:
    return lambda: start(pgconn, start_replication_logical(slot, LSN(), {}))


def test_what_a_slot_is_not_for(slots: EmbeddedPostgres) -> None:
    slots.psql("CREATE DATABASE elsewhere")
    elsewhere = slots.dsn.replace("dbname=postgres", "dbname=elsewhere")
    with replication_connection(elsewhere) as pgconn, connect(slots.dsn) as connection:
        told = [
            refused(start_logical(pgconn, "logical"), ServerConfigError),
            refused(start_logical(pgconn, "physical"), ServerConfigError),
            refused(lambda: advance_slot(connection, "logical", LSN(1)), ServerConfigError),
            refused(lambda: create_slot(pgconn, "x", plugin="wal2nothing"), ServerConfigError),
        ]
        if pgconn.server_version >= 150000:
            told.append(refused(lambda: read_slot(pgconn, "logical"), ServerConfigError))
        create_physical_slot(pgconn, "reserves_nothing")
        told.append(refused(lambda: copy_slot(connection, "reserves_nothing", "copy"), ServerConfigError))
        drop_slot(pgconn, "reserves_nothing")
    with replication_connection(slots.dsn, physical=True) as pgconn:
        command = StartPhysicalReplication(LSN.parse("0/1000000"), slot="logical").build()
        told.append(refused(lambda: start(pgconn, command), ServerConfigError))
    slots.psql("DROP DATABASE elsewhere")
    assert not [sentence for sentence in told if "Drop" in sentence or "removed" in sentence]
    assert "Install the output plugin" in told[3]


def test_a_lost_slot_is_called_lost(slots: EmbeddedPostgres) -> None:
    slots.psql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'; SELECT pg_reload_conf()")

    def lost() -> bool:
        for _ in range(4):
            slots.psql("SELECT pg_switch_wal(), txid_current()")
        slots.psql("CHECKPOINT")  # 17 and later remove no WAL that is not yet summarized
        return slots.psql("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'logical'") == "lost"

    eventually(lost, timeout_s=120, poll_s=0.2)
    with replication_connection(slots.dsn) as pgconn:
        assert "Drop the slot" in refused(start_logical(pgconn, "logical"), SlotLostError)
    slots.psql("ALTER SYSTEM RESET max_slot_wal_keep_size; SELECT pg_reload_conf()")
