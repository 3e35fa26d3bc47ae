"""TLS with verify-full: the right certificate passes, every wrong one is an AuthError that names the cure.

A connection that stood, or was cut while it was being made, is none of that: it is tried again.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.postgres.test_cut_connections import CuttingProxy
from tests.servers.conftest import give_to_server
from wal2lake.errors import AuthError, ConnectError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import connect, execute, mapped_errors, replication_connection
from wal2lake.postgres.framed_stream import ReplicationStream
from wal2lake.postgres.slots import create_slot
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.servers import versioned_server

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by the openssl program"),
]


@dataclass
class Secured:
    server: EmbeddedPostgres
    root: Path
    stranger: Path

    def dsn(self, host: str, root: Path, port: int | None = None) -> str:
        port = port or self.server.port
        where = f"host={host} hostaddr=127.0.0.1 port={port} user=secure password=secret dbname=postgres"
        return f"{where} sslmode=verify-full sslrootcert={root}"


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def self_signed(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-keyout", key, "-out", certificate,
            "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}")  # fmt: skip
    key.chmod(0o600)
    return key, certificate


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A server that takes only TLS and SCRAM from ``secure``."""
    folder = Path(tempfile.mkdtemp(prefix="wal2lake-tls-"))
    folder.chmod(0o755)
    key, certificate = self_signed(folder, "server", "localhost")
    _, stranger = self_signed(folder, "stranger", "localhost")
    give_to_server(key)
    settings = {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
    with versioned_server(18, settings) as server:
        server.psql("CREATE ROLE secure LOGIN REPLICATION PASSWORD 'secret'")
        hba = server.data_dir / "pg_hba.conf"
        hba.write_text("hostssl all secure all scram-sha-256\nhostnossl all secure all reject\n" + hba.read_text())
        server.psql("SELECT pg_reload_conf()")
        yield Secured(server, certificate, stranger)
    shutil.rmtree(folder)


def test_verify_full_passes(secured: Secured) -> None:
    dsn = secured.dsn("localhost", secured.root)
    with connect(dsn) as connection:
        assert connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)
    with replication_connection(dsn) as pgconn:
        assert execute(pgconn, "IDENTIFY_SYSTEM")


@pytest.mark.parametrize(
    ("host", "root"), [("elsewhere", "root"), ("localhost", "stranger")], ids=["wrong host", "wrong authority"]
)
def test_a_wrong_certificate_is_refused(secured: Secured, host: str, root: str) -> None:
    dsn = secured.dsn(host, getattr(secured, root))
    with pytest.raises(AuthError, match="certificate") as refused:
        connect(dsn)
    assert "secret" not in str(refused.value)
    with pytest.raises(AuthError, match="certificate"), replication_connection(dsn):
        pass


def test_without_tls_or_root_certificate(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="pg_hba"):
        connect(secured.dsn("localhost", secured.root).replace("verify-full", "disable"))
    with pytest.raises(AuthError, match="certificate"):
        connect(secured.dsn("localhost", tmp_path / "absent"))


@pytest.fixture(scope="module")
def published(secured: Secured) -> Secured:
    secured.server.psql("CREATE TABLE cut (a int PRIMARY KEY, b text); CREATE PUBLICATION cut FOR TABLE cut")
    with replication_connection(secured.dsn("localhost", secured.root)) as pgconn:
        create_slot(pgconn, "cut")
    secured.server.psql("INSERT INTO cut SELECT g, repeat('x', 200) FROM generate_series(1, 5000) g")
    return secured


@pytest.mark.parametrize("limit", [1, 1000, 1500])
def test_cut_in_the_handshake(secured: Secured, limit: int) -> None:
    proxy = CuttingProxy(secured.server.tcp_dsn, limit)
    with proxy, pytest.raises(ConnectError):
        connect(secured.dsn("localhost", secured.root, proxy.port))


@pytest.mark.parametrize("limit", [20_000, 300_003])
def test_a_stream_that_is_cut(published: Secured, limit: int) -> None:
    proxy = CuttingProxy(published.server.tcp_dsn, limit)
    with proxy, pytest.raises(ConnectError) as cut, stream(published, proxy.port) as opened:
        while True:
            opened.receive(1.0)
    assert cut.value.transient


def test_a_stream_whose_walsender_ends(published: Secured) -> None:
    """By an administrator's will it says so first; killed it says nothing, and the whole server recovers."""
    for end in ("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'cut'", None):
        with stream(published) as opened:
            if end is None:
                published.server.kill()
            else:
                published.server.psql(end)
            with pytest.raises(ConnectError):
                while True:
                    opened.receive(1.0)
    published.server.start()


@pytest.mark.parametrize("replication", [True, False])
def test_a_query_that_is_cut(secured: Secured, replication: bool) -> None:
    proxy, query = CuttingProxy(secured.server.tcp_dsn, 50_000), "SELECT repeat('x', 100000)"
    dsn = secured.dsn("localhost", secured.root, proxy.port)
    with proxy, pytest.raises(ConnectError):
        if replication:
            with replication_connection(dsn) as pgconn:
                execute(pgconn, query)
        else:
            with closing(connect(dsn)) as connection, mapped_errors():
                connection.execute(query.encode())


def stream(secured: Secured, port: int | None = None) -> ReplicationStream:
    """Opened when no walsender of the test before has the slot any more."""
    with connect(secured.dsn("localhost", secured.root)) as connection:
        connection.execute(
            "DO $$ BEGIN WHILE (SELECT active FROM pg_replication_slots WHERE slot_name = 'cut') LOOP"
            " PERFORM pg_sleep(0.1); END LOOP; END $$"
        )
    dsn = secured.dsn("localhost", secured.root, port)
    return ReplicationStream(dsn, "cut", LSN(0), "cut", {"proto_version": "1"})
