"""A server that is told to stop waits for its receivers, and they let it: in seconds, with nothing left unsent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from wal2lake.errors import ConnectError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.logical import LogicalStream
from wal2lake.postgres.outputs import RawOutput
from wal2lake.postgres.physical.receivelog import ReceiveWalOptions, receive_wal
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slots import create_physical_slot, create_slot, drop_slot
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

_SOON_S = 10.0  # EmbeddedPostgres would end the server by force after 30


@contextmanager
def receiving(receive: Callable[[threading.Event], object]) -> Iterator[list[Wal2LakeError]]:
    """``receive`` runs in a thread until the block ends; what it raised, if it did."""
    stop, failures = threading.Event(), list[Wal2LakeError]()

    def run() -> None:
        try:
            receive(stop)
        except Wal2LakeError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def await_streaming(server: EmbeddedPostgres, least: str = "'0/0'") -> None:
    """Until a walsender streams and its client has written up to ``least``."""
    server.psql(
        "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' "
        f"AND coalesce(write_lsn >= {least}, false)) LOOP PERFORM pg_sleep(0.05), pg_stat_clear_snapshot(); "
        "END LOOP; END $$"
    )


def stop_and_start(server: EmbeddedPostgres) -> float:
    """Seconds until a fast shutdown was done."""
    begin = time.monotonic()
    try:
        server.stop()
        return time.monotonic() - begin
    finally:
        server.start()


@pytest.mark.parametrize(("slot", "synchronous"), [(None, False), ("walled", False), ("walled", True)])
def test_a_server_stops_while_receivewal_is_attached(
    versioned: EmbeddedPostgres, folder: Path, slot: str | None, synchronous: bool
) -> None:
    options = ReceiveWalOptions(slot, synchronous=synchronous, status_interval_s=0.2, reconnect_s=None)
    with replication_connection(versioned.dsn) as pgconn:
        if slot:
            create_physical_slot(pgconn, slot, reserve_wal=True)
    with receiving(lambda stop: receive_wal(versioned.dsn, folder, options, stop)) as failures:
        versioned.psql("SELECT pg_logical_emit_message(true, 'wal', 'half a segment')")
        await_streaming(versioned, "pg_current_wal_flush_lsn()")
        took = stop_and_start(versioned)
    assert took < _SOON_S
    assert [type(failure) for failure in failures] == [ConnectError]
    with replication_connection(versioned.dsn) as pgconn:
        if slot:
            drop_slot(pgconn, slot, wait=True)


@pytest.mark.parametrize("fsync_interval_s", [0, 60])
def test_a_server_stops_while_recv_is_attached(
    versioned: EmbeddedPostgres, folder: Path, fsync_interval_s: float
) -> None:
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "stopping", plugin="test_decoding")
    options = RecvOptions(status_interval_s=0.2, fsync_interval_s=fsync_interval_s, reconnect_s=None)
    with closing(RawOutput(folder / "out")) as output:
        with receiving(lambda stop: recv(versioned.dsn, "stopping", output, options, stop)) as failures:
            await_streaming(versioned)
            versioned.psql("CREATE TABLE stopping (a int); INSERT INTO stopping VALUES (7); DROP TABLE stopping")
            took = stop_and_start(versioned)
        assert took < _SOON_S
        assert [type(failure) for failure in failures] == [ConnectError]
    assert b"INSERT: a[integer]:7" in (folder / "out").read_bytes()
    with replication_connection(versioned.dsn) as pgconn:
        drop_slot(pgconn, "stopping", wait=True)


def test_a_server_stops_while_a_program_acknowledges_what_it_reads(versioned: EmbeddedPostgres) -> None:
    """The loop of docs/live.md: behind the last change lies WAL that nobody but the stream can acknowledge."""
    with replication_connection(versioned.dsn) as pgconn:
        create_slot(pgconn, "looping", plugin="test_decoding")
    seen = list[bytes]()

    def read(stop: threading.Event) -> None:
        with LogicalStream(versioned.dsn, "looping") as stream:
            for change in stream:
                seen.append(change.payload)
                stream.acknowledge(LSN(change.start_lsn))

    with receiving(read) as failures:
        await_streaming(versioned)
        versioned.psql("CREATE TABLE looping (a int); INSERT INTO looping VALUES (7); DROP TABLE looping")
        versioned.psql("CHECKPOINT")
        took = stop_and_start(versioned)
    assert took < _SOON_S
    assert [type(failure) for failure in failures] == [ConnectError]
    assert any(b"INSERT: a[integer]:7" in payload for payload in seen)
    with replication_connection(versioned.dsn) as pgconn:
        drop_slot(pgconn, "looping", wait=True)
