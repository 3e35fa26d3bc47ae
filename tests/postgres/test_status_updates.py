"""A status update reaches the server at once, also when nothing comes from there that would be read with it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.waiting import eventually
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import Connection, connect, replication_connection
from wal2lake.postgres.logical import LogicalStream, ThreadedLogicalStream
from wal2lake.postgres.physical.receivelog import ReceiveWalOptions, receive_wal
from wal2lake.postgres.slots import SlotState, create_physical_slot, create_slot, drop_slot, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def state(connection: Connection, name: str) -> SlotState:
    found = slot_state(connection, name)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", [LogicalStream, ThreadedLogicalStream])
def test_a_logical_stream_tells_its_position(server: EmbeddedPostgres, kind: type[LogicalStream]) -> None:
    with replication_connection(server.dsn) as pgconn, connect(server.dsn) as connection:
        create_slot(pgconn, "told", plugin="pgoutput")
        options = (("proto_version", "1"), ("publication_names", "absent"))
        with kind(server.dsn, "told", plugin_options=options) as stream:
            server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'told', 'x')")
            end = LSN.parse(server.psql("SELECT pg_current_wal_flush_lsn()"))
            stream.acknowledge(end)
            stream.send_status()
            eventually(lambda: state(connection, "told").confirmed_flush_lsn == end)
        drop_slot(pgconn, "told", wait=True)


def test_receivewal_tells_what_is_durable(server: EmbeddedPostgres, tmp_path: Path) -> None:
    stop = threading.Event()
    options = ReceiveWalOptions("told_wal", status_interval_s=0.1)
    with replication_connection(server.dsn) as pgconn, connect(server.dsn) as connection:
        create_physical_slot(pgconn, "told_wal", reserve_wal=True)
        receiver = threading.Thread(target=receive_wal, args=(server.dsn, tmp_path, options, stop))
        receiver.start()
        try:
            server.psql("SELECT pg_logical_emit_message(false, 'wal', 'x')")
            end = LSN.parse(server.psql("SELECT pg_switch_wal()"))
            eventually(lambda: (state(connection, "told_wal").restart_lsn or 0) >= end)
        finally:
            stop.set()
            receiver.join(30)
        drop_slot(pgconn, "told_wal", wait=True)
