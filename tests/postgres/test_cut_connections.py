"""A connection that breaks after any number of bytes is a ConnectError: never a hang, a crash or a short answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.waiting import eventually
from wal2lake.errors import ConnectError
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.catalog import published_tables
from wal2lake.postgres.connection import connect, connect_replication, replication_connection
from wal2lake.postgres.logical import LogicalStream
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.postgres.slots import create_slot, drop_slot
from wal2lake.postgres.snapshot import SnapshotKeeper, copy_binary
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


class CuttingProxy:
    """Forward one connection to where ``dsn`` points and cut it after ``limit`` bytes from the server."""

    def __init__(self, dsn: str, limit: int) -> None:
        self._dsn = dsn
        self._limit = limit
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> str:
        self._thread.start()
        return make_conninfo(self._dsn, port=self.port, sslmode="disable", gssencmode="disable")

    def __exit__(self, *failure: object) -> None:
        self._thread.join(30)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", int(conninfo_to_dict(self._dsn)["port"])))
        there = threading.Thread(target=_forward, args=(client, server, 1 << 60))
        there.start()
        _forward(server, client, self._limit)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        there.join()
        client.close()
        server.close()


def _forward(source: socket.socket, target: socket.socket, limit: int) -> None:
    with contextlib.suppress(OSError):
        while limit and (data := source.recv(min(limit, 65536))):
            target.sendall(data)
            limit -= len(data)


@pytest.fixture(scope="module")
def published(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    server.psql("CREATE TABLE cut (a int PRIMARY KEY, b text); CREATE PUBLICATION cut FOR TABLE cut")
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, "cut")
    server.psql(
        "SET synchronous_commit = on; INSERT INTO cut SELECT g, repeat('x', 200) FROM generate_series(1, 5000) g"
    )
    yield server
    with replication_connection(server.dsn) as pgconn:
        drop_slot(pgconn, "cut", wait=True)
    server.psql("DROP TABLE cut; DROP PUBLICATION cut")


def test_a_host_that_is_gone_is_noticed_within_a_minute(server: EmbeddedPostgres) -> None:
    """Keepalives alone would not do: the kernel sends none while a status report is unanswered, for a quarter hour."""
    with replication_connection(server.tcp_dsn) as pgconn, socket.socket(fileno=os.dup(pgconn.socket)) as connection:
        idle, gone = socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT
        assert [connection.getsockopt(socket.IPPROTO_TCP, option) for option in (idle, gone)] == [30, 60_000]
    ours = f"{server.tcp_dsn} tcp_user_timeout=5000"
    with replication_connection(ours) as pgconn, socket.socket(fileno=os.dup(pgconn.socket)) as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, gone) == 5000


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Where nobody answers, as when a host is switched off: the listener's backlog is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_host_that_does_not_answer_is_passed_over(server: EmbeddedPostgres, silent_port: int) -> None:
    several = make_conninfo(server.tcp_dsn, host="127.0.0.1,127.0.0.1", port=f"{silent_port},{server.port}")
    with replication_connection(f"{several} connect_timeout=2") as pgconn:
        assert int(pgconn.port) == server.port
    with pytest.raises(ConnectError, match="timeout"):
        connect_replication(f"host=127.0.0.1 port={silent_port} connect_timeout=2")


@pytest.mark.parametrize("limit", [0, 1, 50, 400])
def test_while_connecting(published: EmbeddedPostgres, limit: int) -> None:
    with CuttingProxy(published.tcp_dsn, limit) as dsn, pytest.raises(ConnectError):
        connect(dsn)


def await_free(server: EmbeddedPostgres) -> None:
    """The walsender of the test before may not have noticed yet that its client is gone."""
    eventually(lambda: server.psql("SELECT active FROM pg_replication_slots WHERE slot_name = 'cut'") == "f")


@pytest.mark.parametrize("limit", [600, 1000, 5001, 300_003])
def test_while_streaming(published: EmbeddedPostgres, limit: int) -> None:
    options = PgoutputOptions(("cut",))
    await_free(published)
    with (
        CuttingProxy(published.tcp_dsn, limit) as dsn,
        pytest.raises(ConnectError) as cut,
        LogicalStream(dsn, "cut", plugin_options=options) as stream,
    ):
        for _ in stream:
            pass
    assert cut.value.transient


@pytest.mark.parametrize("limit", [1000, 200_000, 999_999])
def test_while_copying(published: EmbeddedPostgres, limit: int) -> None:
    with connect(published.dsn) as connection:
        (table,) = published_tables(connection, "cut")
    with (
        SnapshotKeeper(published.dsn) as keeper,
        CuttingProxy(published.tcp_dsn, limit) as dsn,
        pytest.raises(ConnectError),
    ):
        for _ in copy_binary(dsn, keeper.identity.name, table, table.columns):
            pass


def test_while_backing_up(published: EmbeddedPostgres, tmp_path: Path) -> None:
    with CuttingProxy(published.tcp_dsn, 3_000_000) as dsn, pytest.raises(ConnectError):
        base_backup(dsn, tmp_path / "cut", BackupOptions(checkpoint="fast", sync=False))
