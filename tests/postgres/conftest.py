"""How a walsender that a test made up is reached: plain, or through libpq's TLS."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from wal2lake.testing.walsender import FakeWalsender

SSL_REQUEST = 8


class TlsFront:
    """In front of a FakeWalsender: answers libpq's SSLRequest and forwards what is in the TLS session. Each piece that
    the server sends is a record of its own."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self._port = int(dsn.partition("port=")[2].split()[0])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.dsn = (
            f"host=localhost hostaddr=127.0.0.1 port={self._listener.getsockname()[1]} user=postgres dbname=postgres"
            f" gssencmode=disable sslmode=verify-full sslrootcert={folder}/server.crt"
        )

    def __enter__(self) -> str:
        self._threads[0].start()
        return self.dsn

    def __exit__(self, *failure: object) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                plain, _ = self._listener.accept()
                assert len(plain.recv(SSL_REQUEST, socket.MSG_WAITALL)) == SSL_REQUEST
                plain.sendall(b"S")
                client = self._context.wrap_socket(plain, server_side=True)
                server = socket.create_connection(("127.0.0.1", self._port))
                self._ends += [client, server]
                for pair in ((client, server), (server, client)):
                    self._threads.append(threading.Thread(target=self._forward, args=pair))
                    self._threads[-1].start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    return folder


Way = Callable[[FakeWalsender], contextlib.AbstractContextManager[str]]


@pytest.fixture(params=["plain", "tls"])
def way(request: pytest.FixtureRequest) -> Way:
    """How the walsender is reached: its DSN."""
    if request.param == "plain":
        return lambda server: contextlib.nullcontext(server.dsn)
    folder = request.getfixturevalue("certificate")
    return lambda server: TlsFront(server.dsn, folder)
