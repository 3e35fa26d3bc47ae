"""The commands recv, slots, basebackup, receivewal and identify against a real server."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from tests.servers.conftest import give_to_server
from wal2lake.capture import Capture
from wal2lake.cli.protocol import app
from wal2lake.config import Config, LogConfig, SourceConfig
from wal2lake.errors import (
    ConfigError,
    ConnectError,
    ServerConfigError,
    SlotExistsError,
    SlotMissingError,
    Wal2LakeError,
)
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.physical.manifest import read_manifest
from wal2lake.postgres.physical.standby import primary_conninfo
from wal2lake.postgres.preflight import preflight
from wal2lake.tables.catalog_session import catalog_session
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

AWKWARD = "it's \\ a 'password"


@pytest.fixture
def run(server: EmbeddedPostgres) -> Runner:
    return Runner(server)


class Runner:
    def __init__(self, server: EmbeddedPostgres) -> None:
        self.dsn = server.dsn
        self.said = ""

    def __call__(self, *arguments: object) -> str:
        result = CliRunner().invoke(app, [*map(str, arguments), "--dsn", self.dsn])
        if isinstance(result.exception, Wal2LakeError):
            raise result.exception
        assert result.exit_code == 0, result.output
        self.said = result.stderr
        return result.stdout.strip()


def test_identify(run: Runner) -> None:
    told = json.loads(run("identify", "--json"))
    assert (told["timeline"], told["dbname"], told["wal_segment_size"]) == (1, "postgres", 16 << 20)
    assert "system_id" in run("identify")


def test_slots(run: Runner) -> None:
    point = LSN.parse(json.loads(run("slots", "create", "commanded", "--json"))["consistent_point"])
    assert json.loads(run("slots", "copy", "commanded", "commanded_copy", "--json"))["lsn"] == str(point)
    advanced = json.loads(run("slots", "advance", "commanded_copy", "FFFFFFFF/0", "--json"))
    assert LSN.parse(advanced["end_lsn"]) >= point
    altered = run("slots", "alter", "commanded_copy", "--failover", "--json")
    assert json.loads(altered) == {"slot_name": "commanded_copy", "failover": True}
    run("slots", "create", "commanded_wal", "--physical", "--reserve-wal")
    assert json.loads(run("slots", "read", "commanded_wal", "--json"))["slot_type"] == "physical"
    found = {slot["slot_name"]: slot for slot in json.loads(run("slots", "list", "--json"))}
    assert found["commanded"]["confirmed_flush_lsn"] == str(point)
    assert found["commanded_copy"]["failover"] is True
    assert found["commanded"]["retained_wal"] >= 0
    lines = run("slots", "list").splitlines()
    assert all("slot_name=commanded" in line and " retained_wal=" in line for line in lines)
    for name in ("commanded", "commanded_copy", "commanded_wal"):
        assert json.loads(run("slots", "drop", name, "--wait", "--json")) == {"slot_name": name}
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


def test_recv_can_be_tried_twice(server: EmbeddedPostgres, run: Runner, tmp_path: Path) -> None:
    server.psql("CREATE TABLE twice (a int PRIMARY KEY); CREATE PUBLICATION twice FOR TABLE twice")
    again = ("recv", "twice", "--create-slot", "--if-not-exists", "--publication", "twice", "--format", "json")
    for row in (1, 2):
        end = server.psql("SELECT pg_current_wal_insert_lsn()")
        run(*again, "--until-lsn", end, "--file", tmp_path / "lines")
        server.psql(f"SET synchronous_commit = on; INSERT INTO twice VALUES ({row})")
    assert '"new": {"a": "1"}' in (tmp_path / "lines").read_text()
    run("recv", "twice", "--drop-slot")
    server.psql("DROP TABLE twice; DROP PUBLICATION twice")


def test_what_recv_refuses_leaves_no_slot(server: EmbeddedPostgres, run: Runner) -> None:
    made = ("recv", "refused", "--create-slot", "--publication", "p")
    for wrong in (
        ("--streaming", "parallel", "--proto-version", "3"),
        ("-o", "=none"),
        ("-o", "origin=nowhere"),
        ("--file", "/absent/folder/file"),
    ):
        with pytest.raises(ConfigError):
            run(*made, *wrong)
    with pytest.raises(SlotMissingError):
        run("recv", "refused", "--drop-slot")


def test_pgoutputs_options_come_by_flag_or_by_o(server: EmbeddedPostgres, run: Runner, tmp_path: Path) -> None:
    """What came from an origin is left out by -o origin=none too, and large transactions are streamed at once."""
    server.psql(
        "CREATE TABLE origins (a int PRIMARY KEY); CREATE PUBLICATION origins FOR TABLE origins;"
        "SELECT pg_replication_origin_create('elsewhere')"
    )
    run("recv", "origins", "--create-slot", "--no-start")
    server.psql(
        "INSERT INTO origins VALUES (1); SELECT pg_replication_origin_session_setup('elsewhere');"
        "SET synchronous_commit = on; INSERT INTO origins VALUES (2);"
    )
    run("slots", "copy", "origins", "origins_too")
    end = server.psql("SELECT pg_current_wal_flush_lsn()")
    asked = ("--format", "json", "--until-lsn", end, "--streaming", "parallel")
    run("recv", "origins", *asked, "-o", "publication_names=origins", "-o", "origin=none", "-f", tmp_path / "by_o")
    run("recv", "origins_too", *asked, "--publication", "origins", "--origin", "none", "-f", tmp_path / "by_flag")
    lines = (tmp_path / "by_o").read_text()
    assert lines == (tmp_path / "by_flag").read_text()
    assert [line["new"] for line in map(json.loads, lines.splitlines()) if "new" in line] == [{"a": "1"}]
    for name in ("origins", "origins_too"):
        run("slots", "drop", name, "--wait")
    server.psql("SELECT pg_replication_origin_drop('elsewhere'); DROP TABLE origins; DROP PUBLICATION origins")


def test_receivewal(server: EmbeddedPostgres, run: Runner, tmp_path: Path) -> None:
    run("receivewal", "--create-slot", "--slot", "walled")
    run("receivewal", "--create-slot", "--slot", "walled", "--if-not-exists")
    with pytest.raises(SlotExistsError):
        run("receivewal", "--create-slot", "--slot", "walled")
    server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'a', 'b'); SELECT pg_switch_wal()")
    server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'a', 'b')")
    end = server.psql("SELECT pg_current_wal_flush_lsn()")
    names = run("receivewal", tmp_path, "--slot", "walled", "--until-lsn", end).splitlines()
    run("receivewal", "--drop-slot", "--slot", "walled")
    assert set(os.listdir(tmp_path)) >= set(names) != set()
    for name in names:
        assert (tmp_path / name).read_bytes() == (server.data_dir / "pg_wal" / name).read_bytes()


def test_a_standby_starts_from_a_backup_and_streams(server: EmbeddedPostgres, run: Runner) -> None:
    with tempfile.TemporaryDirectory(prefix="wal2lake-") as name:
        root = Path(name)
        run.dsn = make_conninfo(server.dsn, password=AWKWARD)
        run("basebackup", root / "data", "-R", "--no-manifest", "--checkpoint", "fast", "--no-sync")
        assert not (root / "data" / "backup_manifest").exists()
        give_to_server(root)
        with EmbeddedPostgres(settings=server.settings, data_dir=root, install=server.install) as standby:
            assert conninfo_to_dict(standby.psql("SHOW primary_conninfo"))["password"] == AWKWARD
            server.psql("CREATE TABLE followed AS SELECT 1")
            end = server.psql("SELECT pg_current_wal_insert_lsn()")
            replayed = f"pg_last_wal_replay_lsn() >= '{end}'"
            standby.psql(f"DO $$BEGIN WHILE NOT {replayed} LOOP PERFORM pg_sleep(0.1); END LOOP; END$$")
            assert standby.psql("SELECT status, pg_is_in_recovery() FROM pg_stat_wal_receiver") == "streaming|t"
            assert standby.psql("SELECT count(*) FROM followed") == "1"
            _no_pipeline_begins_on(standby, root / "log")
        server.psql("DROP TABLE followed")


def _no_pipeline_begins_on(standby: EmbeddedPostgres, log: Path) -> None:
    said = r"standby: tables are read on the primary.*target_session_attrs=read-write"
    with pytest.raises(ConnectError, match=said), catalog_session(standby.dsn):
        pass
    with pytest.raises(ServerConfigError, match="standby: a pipeline begins on the primary"):
        Capture(Config(SourceConfig(standby.dsn, "absent", "on_a_standby"), LogConfig(str(log)))).run(threading.Event())
    assert standby.psql("SELECT count(*) FROM pg_replication_slots") == "0"
    found = {finding.name: finding.level for finding in preflight(standby.dsn, "absent", "on_a_standby")}
    assert found["server"] == "error"


def test_a_standby_is_told_no_password_but_the_dsns(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "environment")
    for dsn, secret in ((server.dsn, None), (make_conninfo(server.dsn, password=AWKWARD), AWKWARD)):
        with replication_connection(dsn, physical=True) as pgconn:
            told = conninfo_to_dict(primary_conninfo(pgconn, dsn))
        assert (told.get("password"), told["port"], told["user"]) == (secret, str(server.port), "postgres")
        assert not {"replication", "fallback_application_name", "connect_timeout", "sslmode"} & told.keys()


def test_what_the_server_says_beside_a_backup(run: Runner, tmp_path: Path) -> None:
    run("basebackup", tmp_path / "copy", "--no-wal", "--checkpoint", "fast", "--no-sync")
    assert "PostgreSQL says: WAL archiving is not enabled" in run.said


def test_basebackup(run: Runner, tmp_path: Path) -> None:
    told = json.loads(run("basebackup", tmp_path / "copy", "--checkpoint", "fast", "--no-sync", "--json"))
    manifest = (tmp_path / "copy" / "backup_manifest").read_bytes()
    assert told["files"] == len(read_manifest(manifest)) > 100
    with pytest.raises(ConfigError, match="not empty"):
        run("basebackup", tmp_path / "copy")
