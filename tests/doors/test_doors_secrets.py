"""Secrets of the DSN and of [spark] are where they are needed, and nowhere else on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict

from tests.waiting import eventually
from wal2lake.spark.gateway import remove_stale
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

CANARY = "canary-in-the-coal-mine"
_SETTINGS = """
[source]
dsn = {dsn}
slot = "canary"
publication = "canary"

[spark]
"spark.master" = "local[1,4]"
"spark.local.dir" = {local}
"spark.hadoop.fs.s3a.secret.key" = "{canary} with = and \\\\ and # in it"
"""


@pytest.fixture
def folder(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Path]:
    """A configuration with secrets, read by a process whose umask is everybody's."""
    server.psql("CREATE TABLE canary (id int PRIMARY KEY); CREATE PUBLICATION canary FOR TABLE canary")
    server.psql("INSERT INTO canary VALUES (1)")
    text = _SETTINGS.format(dsn=json.dumps(server.tcp_dsn), local=json.dumps(str(tmp_path / "spark")), canary=CANARY)
    (tmp_path / "wal2lake.toml").write_text(text)
    yield tmp_path
    server.psql("SELECT pg_drop_replication_slot('canary')")
    server.psql("DROP PUBLICATION canary; DROP TABLE canary")


def _of_processes() -> Iterator[tuple[str, bytes]]:
    """What everybody reads of every process, and what a process hands on to those it starts."""
    for process in Path("/proc").iterdir():
        for name in ("cmdline", "environ") if process.name.isdecimal() else ():
            with contextlib.suppress(OSError):
                yield f"{process}/{name}", (process / name).read_bytes()


def test_doors_no_secret_is_told(folder: Path, server: EmbeddedPostgres) -> None:
    secrets = (CANARY.encode(), str(conninfo_to_dict(server.tcp_dsn)["password"]).encode())
    command = [sys.executable, "-m", "wal2lake", "run"]
    seen = 0
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, umask=0o022) as run:
        assert run.stderr is not None
        try:
            for number in (1, 2):  # while it starts and reads the table, and while it streams

                def landed(number: int = number) -> bool:
                    nonlocal seen
                    for place, content in _of_processes():
                        seen += b"org.apache.spark.deploy.SparkSubmit" in content
                        assert not any(secret in content for secret in secrets), place
                    lake = str(folder / "wal2lake/lake/public/canary")
                    return DeltaTable.is_deltatable(lake) and _rows(folder) >= number

                eventually(landed, alive=lambda: run.poll() is None, timeout_s=180)
                server.psql(f"INSERT INTO canary VALUES ({number + 1})")
        finally:
            run.send_signal(signal.SIGINT)
            said = run.stderr.read()
    assert (run.returncode, seen > 0) == (0, True), said
    assert b"incubator" not in said
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "wal2lake.toml"]
    for path in files:
        assert not any(secret in path.read_bytes() for secret in secrets), path
    assert {"pipeline.log", "capture.log", "pipeline.json", "capture.json"} <= {path.name for path in files}
    assert not any(secret in said for secret in secrets)
    for private in (folder / "wal2lake/log", folder / "wal2lake/log/status"):
        assert private.stat().st_mode & 0o077 == 0, private
    for log in (folder / "wal2lake/log/status").glob("*.log"):
        assert log.stat().st_mode & 0o077 == 0, log


def _rows(folder: Path) -> int:
    return DeltaTable(str(folder / "wal2lake/lake/public/canary")).to_pyarrow_table().num_rows


def test_settings_that_a_killed_start_left_behind_are_removed(tmp_path: Path) -> None:
    old, fresh, other = (tmp_path / name for name in ("wal2lake-spark-a.conf", "wal2lake-spark-b.conf", "spark-a.conf"))
    for path in (old, fresh, other):
        path.write_text("spark.secret=hush")
    for path in (old, other):
        os.utime(path, (1, 1))
    remove_stale(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spark-a.conf", "wal2lake-spark-b.conf"]
