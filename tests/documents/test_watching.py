"""The pages about watching, followed word for word; ports, and who takes traces, are ours."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
import yaml

from tests.documents.shell import Shell, follow, streaming, to_run
from tests.documents.shown import ROOT, Shown, run
from tests.otlp import collecting, names
from tests.waiting import eventually
from wal2lake.config import Config
from wal2lake.testing.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.documents, pytest.mark.server, pytest.mark.slow]

SCHEMA = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION wal2lake FOR ALL TABLES"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def answers(url: str, word: str) -> bool:
    """Whether somebody serves ``word`` there by now."""
    try:
        with urlopen(url, timeout=30) as answer:
            return word in answer.read().decode()
    except OSError:
        return False


@pytest.fixture
def shell(server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """In a folder with settings for a database that has a table and a publication."""
    server.psql("CREATE DATABASE watching")
    server.psql(SCHEMA, database="watching")
    monkeypatch.chdir(tmp_path)
    with Shell(tmp_path, server) as made:
        dsn = server.dsn.replace("dbname=postgres", "dbname=watching")
        made.type(f'wal2lake init --dsn "{dsn}"')
        yield made
    server.psql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = 'watching'")
    server.psql("DROP DATABASE watching WITH (FORCE)")


def test_what_watches(server: EmbeddedPostgres, spark: SparkSession, shell: Shell) -> None:
    """First a run that is traced, looked at from a notebook, so that there are events; then the page in its order."""
    items = to_run("docs/monitoring.md")
    (traced,) = [item for item in items if "OTEL_" in item.text]
    port = free_port()

    def trace(_: Shown, text: str) -> None:
        shell.begin(text)
        log = shell.folder / "wal2lake/log"
        eventually(lambda: streaming(log), timeout_s=300, poll_s=0.5, alive=lambda: "wal2lake: " not in shell.said())
        server.psql("INSERT INTO t VALUES (2)", database="watching")
        eventually(lambda: {"batch", "apply", "copy chunks"} <= names(taken), timeout_s=120)
        for item in to_run("docs/monitoring.md", "python"):
            run(item, {"spark": spark})
        shell.end(text)

    def until_said(word: str, text: str) -> None:
        shell.begin(text)
        eventually(lambda: word in shell.said(), timeout_s=120)
        shell.end(text)

    def serve(_: Shown, text: str) -> None:
        shell.begin(text)
        url, rows = f"http://127.0.0.1:{port}", 'wal2lake_table_rows{table="public.t"} 2.0'
        eventually(lambda: answers(f"{url}/metrics", rows), timeout_s=120)
        assert answers(f"{url}/healthz", "at work")
        shell.end(text)

    def tell(_: Shown, text: str) -> None:
        until_said('"event": {"event": "started"', text)
        assert all(json.loads(line)["time"] for line in shell.said().splitlines())

    def warn(_: Shown, text: str) -> None:
        shell.begin(text)
        active = "SELECT count(*) FROM pg_replication_slots WHERE database = 'watching' AND active"
        eventually(lambda: server.psql(active) == "1", timeout_s=120)
        shell.end(text)
        assert "INFO" not in shell.said()

    with collecting() as (url, taken):
        follow([traced], shell, ours={"http://localhost:4318": url}, special={"OTEL_": trace})
    follow(
        [item for item in items if item is not traced and item.language != "python"], shell, ours={"9187": str(port)},
        special={
            "wal2lake events --follow": lambda _, text: until_said("1 change of 1 table", text),
            "wal2lake run --metrics-port": serve, "wal2lake metrics": serve,
            "wal2lake run --log-format": tell, "wal2lake capture": warn,
        },
        otherwise={"yaml": lambda text: scrape(text, port), "toml": lambda text: alert(shell.folder, text)},
    )  # fmt: skip
    assert "copied" in shell.type("wal2lake events --json --kind copied")


def scrape(text: str, port: int) -> None:
    """Prometheus' own words, and a file that is there."""
    settings = yaml.safe_load(text)
    ((job,), (rules,)) = settings["scrape_configs"], settings["rule_files"]
    assert job["static_configs"] == [{"targets": [f"localhost:{port}"]}]
    assert (ROOT / "deploy/monitoring" / rules).exists()


def alert(folder: Path, text: str) -> None:
    (folder / "alert.toml").write_text(text)
    settings = Config.load(folder / "alert.toml").monitor
    assert settings.alerts and settings.alert_authorization == "Bearer …"


def test_the_page(shell: Shell) -> None:
    port = free_port()

    def look(_: Shown, text: str) -> None:
        shell.begin(text)
        eventually(lambda: answers(f"http://127.0.0.1:{port}/", "way-lake"), timeout_s=120)
        assert f"http://127.0.0.1:{port}/" in shell.said()
        shell.end(text)

    ours = {"wal2lake ui": f"wal2lake ui --port {port}", "run --ui": f"run --ui --ui-port {port}"}
    follow(to_run("docs/ui.md"), shell, ours=ours, special={"wal2lake": look})
