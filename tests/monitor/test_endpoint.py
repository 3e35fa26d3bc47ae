"""The endpoint answers at once, from the last look; /healthz and /readyz mean what docs/monitoring.md says."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.monitor.looks import empty_look, whole_look
from tests.waiting import eventually
from wal2lake.config import Config, LakeConfig, LogConfig, MonitorConfig, SourceConfig
from wal2lake.errors import ConfigError
from wal2lake.monitor.endpoint import HEALTHY_S, Endpoint, serving
from wal2lake.monitor.problem import Problem
from wal2lake.run.monitoring import monitoring
from wal2lake.testing.embedded import EmbeddedPostgres


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def endpoint(now: list[float]) -> Endpoint:
    return Endpoint(lambda: now[0])


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[Client]:
    with serving(endpoint, "127.0.0.1", 0) as port:
        yield Client(port)


def test_metrics_are_those_of_the_last_look(endpoint: Endpoint, client: Client) -> None:
    assert client.ask("/metrics") == (200, "")
    endpoint.metrics.look = whole_look()
    status, text = client.ask("/metrics")
    assert status == 200
    assert "# TYPE wal2lake_pipeline_changes_total counter" in text
    assert "wal2lake_slot_lag_bytes 30.0" in text
    endpoint.metrics.look = empty_look()
    assert "wal2lake_slot_lag_bytes" not in client.ask("/metrics")[1]


def test_who_does_not_come_round_is_not_healthy(endpoint: Endpoint, client: Client, now: list[float]) -> None:
    assert client.ask("/healthz") == (200, "at work\n")
    now[0] = HEALTHY_S
    assert client.ask("/healthz") == (503, "silent for 60 s\n")
    endpoint.beat()
    assert client.ask("/healthz")[0] == 200


def test_ready_is_who_keeps_the_lake_up(endpoint: Endpoint, client: Client) -> None:
    assert client.ask("/readyz")[0] == 503
    endpoint.metrics.look = whole_look((Problem("table_quarantined", "a is quarantined.", "a"),))
    status, text = client.ask("/readyz")
    assert (status, json.loads(text)) == (
        200, {"ready": True, "capture": "streaming", "pipeline": "streaming", "problems": ["a is quarantined."]},
    )  # fmt: skip
    for role, state in (("capture", "waiting"), ("pipeline", "snapshot"), ("pipeline", "streaming, silent")):
        endpoint.metrics.look = whole_look(**{f"{role}_state": state})
        status, text = client.ask("/readyz")
        assert (status, json.loads(text)[role]) == (503, state)


def test_other_questions(client: Client) -> None:
    assert client.ask("/")[0] == 200
    assert client.ask("/etc/passwd")[0] == 404
    assert client.ask("/metrics", "POST")[0] == 405
    assert client.ask("/healthz", "HEAD") == (200, "")


def test_head_is_get_without_a_body_and_others_are_told_what_is_allowed(endpoint: Endpoint, client: Client) -> None:
    endpoint.metrics.look = whole_look()
    for path in ("/", "/metrics", "/healthz", "/readyz", "/absent"):
        found = {method: _asked(client.port, method, path) for method in ("GET", "HEAD", "OPTIONS", "POST")}
        status, body, headers = found["GET"]
        assert found["HEAD"] == (status, b"", headers), path
        assert headers["Content-Length"] == str(len(body))
        for method, code in (("OPTIONS", 200), ("POST", 405)):
            assert (found[method][0], found[method][2]["Allow"]) == (code, "GET, HEAD, OPTIONS"), path


def _asked(port: int, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    headers = {name: value for name, value in response.headers.items() if name != "Date"}
    found = response.status, response.read(), headers
    connection.close()
    return found


_BEGUN = {
    "nothing": b"", "half a line": b"GET /met", "half its headers": b"GET /metrics HTTP/1.1\r\nHost: loc",
    "garbage": b"\x16\x03\x01\x00\r\n\r\n", "a whole request": b"GET /metrics HTTP/1.0\r\n\r\n",
}  # fmt: skip


def test_a_connection_that_fails_is_no_news(
    endpoint: Endpoint, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It is idle until its time is over, reset, or does not read what it asked for."""
    monkeypatch.setattr("wal2lake.monitor.endpoint._Handler.timeout", 0.3)
    huge = b"x" * 30_000_000
    monkeypatch.setattr(endpoint, "exposition", lambda environment: ("200 OK", [], huge))
    given_up = "given up"
    with caplog.at_level(logging.DEBUG, "wal2lake.monitor"), serving(endpoint, "127.0.0.1", 0) as port:
        for said in _BEGUN.values():
            with socket.create_connection(("127.0.0.1", port)) as reset:
                reset.sendall(said)
                reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with ExitStack() as stack:
            held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in _BEGUN]
            for one, said in zip(held, _BEGUN.values(), strict=True):
                one.sendall(said)
            eventually(lambda: caplog.text.count(given_up) >= 7)
        assert Client(port).ask("/healthz")[0] == 200
    assert {record.levelname for record in caplog.records} == {"DEBUG"}, caplog.text
    assert "Traceback" not in caplog.text
    assert capfd.readouterr() == ("", "")


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_who_holds_connections_shuts_nobody_out_and_takes_few_threads(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wal2lake.monitor.endpoint.MOST", 5)
    before = threading.active_count()
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", client.port))) for _ in range(30)]
        assert client.ask("/healthz")[0] == 200
        eventually(lambda: threading.active_count() - before <= 5)
        open_still = [one for one in held if not _is_closed(one)]
        assert open_still == held[-len(open_still) :] and 1 <= len(open_still) <= 5, "who came first makes room"


def test_who_says_what_it_wants_a_byte_at_a_time_has_no_longer_than_others(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wal2lake.monitor.endpoint.HELD_S", 0.3)

    def is_given_up() -> bool:
        with suppress(OSError):
            slow.sendall(b"x")
        return _is_closed(slow)

    with socket.create_connection(("127.0.0.1", client.port)) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        eventually(is_given_up, timeout_s=30)


def test_what_cannot_be_answered_is_told_by_the_log(
    endpoint: Endpoint, client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(endpoint, "exposition", lambda environment: 1 / 0)
    assert client.ask("/metrics")[0] == 500
    assert "division by zero" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_named(endpoint: Endpoint, client: Client) -> None:
    with pytest.raises(ConfigError, match=f"at 127.0.0.1, port {client.port}: Address already in use"):
        serving(endpoint, "127.0.0.1", client.port).__enter__()


@pytest.mark.server
def test_what_is_served_is_what_status_finds(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """While it watches a server that goes away and comes again; nothing of the watch ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server.psql("SELECT pg_create_logical_replication_slot('served', 'pgoutput')")
    config = Config(
        source=SourceConfig(server.dsn, "served", "served"),
        log=LogConfig(path=str(tmp_path / "log")),
        lake=LakeConfig(path=str(tmp_path / "lake")),
        monitor=MonitorConfig(metrics_port=port),
    )
    client = Client(port)
    with monitoring(config) as beat:
        beat()
        eventually(lambda: "wal2lake_slot_active 0.0" in client.ask("/metrics")[1])
        text = client.ask("/metrics")[1]
        assert 'wal2lake_problem{kind="publication",table=""} 1.0' in text
        assert "wal2lake_slot_retained_wal_bytes" in text
        assert (client.ask("/healthz")[0], client.ask("/readyz")[0]) == (200, 503)
    server.psql("SELECT pg_drop_replication_slot('served')")
    away = replace(config, source=SourceConfig("host=127.0.0.1 port=1 dbname=x", "served", "served"))
    with monitoring(away):
        eventually(lambda: 'kind="server"' in client.ask("/metrics")[1])
