"""What a network in between, or a damaged pipe, can do: it is said, and nothing of a password is."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from wal2lake.errors import ConfigError
from wal2lake.postgres import connection
from wal2lake.postgres.connection import connect, is_other_host, replication_connection
from wal2lake.postgres.preflight import preflight
from wal2lake.run.process import Child
from wal2lake.testing.embedded import EmbeddedPostgres


@pytest.mark.server
def test_doors_a_plaintext_connection_to_another_host_is_said(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def encryption() -> tuple[str, str]:
        (found,) = [finding for finding in preflight(server.tcp_dsn, "p", "s") if finding.name == "encryption"]
        return found.level, found.text

    assert encryption()[0] == "ok"
    monkeypatch.setattr(connection, "is_other_host", lambda handle: True)
    monkeypatch.setattr(connection, "plaintext_hosts", set())
    level, text = encryption()
    assert (level, "127.0.0.1 is not encrypted" in text, "sslmode=verify-full" in text) == ("warning", True, True)
    caplog.clear()
    monkeypatch.setattr(connection, "plaintext_hosts", set())
    with caplog.at_level(logging.WARNING, "wal2lake"):
        for physical in (False, True):
            with replication_connection(server.tcp_dsn, physical=physical):
                pass
    assert [record.message.count("is not encrypted") for record in caplog.records] == [1]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", None])
def test_doors_what_stays_on_the_machine_needs_no_encryption(address: str | None, tmp_path: Path) -> None:
    if address is None:
        one, other = socket.socketpair()
    else:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.create_server((address, 0), family=family)
        except OSError:
            pytest.skip("this machine has no IPv6")
        with listener:
            one = socket.create_connection(listener.getsockname()[:2])
            other, _ = listener.accept()
    with one, other:
        assert not is_other_host(one.fileno())


@pytest.mark.parametrize(
    "dsn",
    [
        "host=h password=first hunter2=half",
        "host=h password=first hunter2 dbname=x",
        "host=h password='first' hunter2",
        "postgresql://me:1/hunter2@h/db",
        "postgresql://me:first/hunter2@h/db",
        "postgresql://me:first@hunter2@h/db",
        "postgresql://me:fi%rst-hunter2@h/db",
        "postgresql://me:first@h/db?hunter2",
    ],
)
def test_doors_no_half_of_a_password_is_quoted(dsn: str) -> None:
    for attempt in (lambda: connect(dsn), lambda: replication_connection(dsn).__enter__()):
        with pytest.raises(ConfigError) as refused:
            attempt()
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("said", [b"", b"{", b'"x"', b"[1]", b'{"error": 5}', b"{}", b"[" * 100_000, b"\xff\xfe"])
def test_doors_a_damaged_last_line_does_not_silence_a_child(tmp_path: Path, said: bytes) -> None:
    child = Child("capture", tmp_path / "log/status/capture.log")
    pipe = tmp_path / "pipe"
    pipe.write_bytes(b"wal2lake-error: " + said + b"\nwhat came behind it\n")
    child.read_output(pipe.open("rb"))
    child.code = 1
    assert child.reason.endswith("what came behind it")
    assert b"what came behind it" in child.log_file.read_bytes()
