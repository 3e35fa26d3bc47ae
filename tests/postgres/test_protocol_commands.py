"""The commands recv, slots, basebackup, receivewal and identify against a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wal2lake.cli.protocol import app
from wal2lake.errors import ConfigError, SlotMissingError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.manifest import read_manifest
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


@pytest.fixture
def run(server: EmbeddedPostgres) -> Runner:
    return Runner(server)


class Runner:
    def __init__(self, server: EmbeddedPostgres) -> None:
        self._dsn = server.dsn

    def __call__(self, *arguments: object) -> str:
        result = CliRunner().invoke(app, [*map(str, arguments), "--dsn", self._dsn])
        if isinstance(result.exception, Wal2LakeError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout.strip()


def test_identify(run: Runner) -> None:
    told = json.loads(run("identify", "--json"))
    assert (told["timeline"], told["dbname"], told["wal_segment_size"]) == (1, "postgres", 16 << 20)
    assert "system_id" in run("identify")


def test_slots(run: Runner) -> None:
    point = LSN.parse(json.loads(run("slots", "create", "commanded", "--json"))["consistent_point"])
    assert LSN.parse(run("slots", "copy", "commanded", "commanded_copy")) == point
    assert LSN.parse(run("slots", "advance", "commanded_copy", "FFFFFFFF/0")) >= point
    run("slots", "alter", "commanded_copy", "--failover")
    run("slots", "create", "commanded_wal", "--physical", "--reserve-wal")
    assert json.loads(run("slots", "read", "commanded_wal", "--json"))["slot_type"] == "physical"
    found = {slot["slot_name"]: slot for slot in json.loads(run("slots", "list", "--json"))}
    assert found["commanded"]["confirmed_flush_lsn"] == str(point)
    assert found["commanded_copy"]["failover"] is True
    assert "slot_name=commanded " in run("slots", "list")
    for name in ("commanded", "commanded_copy", "commanded_wal"):
        run("slots", "drop", name, "--wait")
    with pytest.raises(SlotMissingError):
        run("slots", "read", "commanded_wal")


def test_recv(server: EmbeddedPostgres, run: Runner, tmp_path: Path) -> None:
    server.psql("CREATE TABLE received (a int PRIMARY KEY); CREATE PUBLICATION received FOR TABLE received")
    run("recv", "received", "--create-slot", "--no-start")
    server.psql("SET synchronous_commit = on; INSERT INTO received VALUES (1), (2)")
    end = server.psql("SELECT pg_current_wal_flush_lsn()")
    file = tmp_path / "lines"
    run("recv", "received", "--publication", "received", "--format", "json", "--until-lsn", end, "--file", file)
    rows = [line["new"] for line in map(json.loads, file.read_text().splitlines()) if line["message"] == "Insert"]
    assert rows == [{"a": "1"}, {"a": "2"}]
    with pytest.raises(ConfigError, match="publication"):
        run("recv", "received", "--no-loop")
    run("recv", "received", "--drop-slot")
    server.psql("DROP TABLE received; DROP PUBLICATION received")


def test_receivewal(server: EmbeddedPostgres, run: Runner, tmp_path: Path) -> None:
    run("slots", "create", "walled", "--physical", "--reserve-wal")
    server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'a', 'b'); SELECT pg_switch_wal()")
    server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'a', 'b')")
    end = server.psql("SELECT pg_current_wal_flush_lsn()")
    names = run("receivewal", tmp_path, "--slot", "walled", "--until-lsn", end).splitlines()
    run("slots", "drop", "walled")
    assert names[-1].startswith("durable up to")
    assert set(os.listdir(tmp_path)) >= set(names[:-1]) != set()
    for name in names[:-1]:
        assert (tmp_path / name).read_bytes() == (server.data_dir / "pg_wal" / name).read_bytes()


def test_basebackup(run: Runner, tmp_path: Path) -> None:
    told = json.loads(run("basebackup", tmp_path / "copy", "--checkpoint", "fast", "--no-sync", "--json"))
    manifest = (tmp_path / "copy" / "backup_manifest").read_bytes()
    assert told["files"] == len(read_manifest(manifest)) > 100
    with pytest.raises(ConfigError, match="not empty"):
        run("basebackup", tmp_path / "copy")
