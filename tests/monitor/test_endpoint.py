"""The endpoint answers at once, from the last look; /healthz and /readyz mean what docs/monitoring.md says."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
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
