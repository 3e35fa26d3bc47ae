"""Another user of the machine is not the embedded server's superuser, who could run programs as its owner."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


def test_doors_of_the_embedded_server_are_closed(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.tcp_dsn) as connection:
        assert connection.execute("SELECT inet_client_addr() IS NOT NULL").fetchone() == (True,)
    for password in ("", "postgres", "wal2lake"):
        guess = make_conninfo(server.tcp_dsn, password=password, passfile="/dev/null")
        for changed in ({}, {"dbname": "template1"}, {"replication": "true"}):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(make_conninfo(guess, **changed))
    folder = Path(str(conninfo_to_dict(server.dsn)["host"]))
    for private in (folder, server.data_dir, server.data_dir.parent):
        assert private.stat().st_mode & 0o077 == 0, private


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_doors_of_the_embedded_server_s_socket_are_closed(server: EmbeddedPostgres) -> None:
    daemon = pwd.getpwnam("daemon")
    command = [str(server.client_dir / "psql"), "-X", "-c", "COPY (SELECT 1) TO PROGRAM 'id'", server.dsn]
    done = subprocess.run(
        command, user=daemon.pw_uid, group=daemon.pw_gid, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Permission denied" in done.stderr) == (2, True), done.stderr


def test_doors_no_server_program_is_told_the_password(server: EmbeddedPostgres) -> None:
    password = str(conninfo_to_dict(server.tcp_dsn)["password"]).encode()
    assert len(password) == 32
    me = str(os.getpid())
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and process.name != me:
            for name in ("cmdline", "environ"):
                try:
                    assert password not in (process / name).read_bytes(), sys.argv
                except OSError:
                    continue  # it has ended, or is another's
