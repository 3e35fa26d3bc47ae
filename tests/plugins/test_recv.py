"""The plugins that ship, from the command line on a real slot: each gets its options and writes what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.codec import read_message
from wal2lake.pgoutput.messages import Begin, Commit, Insert, Relation
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server
SLOT = "shipping"


@pytest.fixture
def until(server: EmbeddedPostgres) -> Iterator[str]:
    """A slot with one transaction, and the LSN where that ends."""
    yield server.psql(f"""
        CREATE TABLE {SLOT} (id int PRIMARY KEY, v text DEFAULT 'it''s', n numeric(5,2));
        CREATE PUBLICATION {SLOT} FOR TABLE {SLOT};
        SELECT FROM pg_create_logical_replication_slot('{SLOT}', 'pgoutput');
        SET synchronous_commit = on;
        INSERT INTO {SLOT} VALUES (1, NULL, 1.50);
        SELECT pg_current_wal_lsn()""").strip()
    server.psql(f"SELECT pg_drop_replication_slot('{SLOT}'); DROP PUBLICATION {SLOT}; DROP TABLE {SLOT}")


def _recv(server: EmbeddedPostgres, folder: Path, until: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "wal2lake", "recv", SLOT, "--dsn", server.dsn, "--publication", SLOT, "--no-loop",
        "--until-lsn", until, "--file", "out", "--python-plugin", *arguments,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=False)


def test_wal2json_asks_the_catalog(server: EmbeddedPostgres, until: str, tmp_path: Path) -> None:
    options = ("-o", "format-version=2", "-o", "include-default=1", "-o", "include-lsn", "-o", "include-not-null=1")
    done = _recv(server, tmp_path, until, "wal2json", *options)
    assert done.returncode == 0, done.stderr
    begin, change, commit = (json.loads(line) for line in (tmp_path / "out").read_text().splitlines())
    assert (begin["nextlsn"], commit["nextlsn"]) == (until, until)
    assert change["columns"] == [
        {"name": "id", "type": "integer", "value": 1, "optional": False, "default": None},
        {"name": "v", "type": "text", "value": None, "optional": True, "default": "'it''s'::text"},
        {"name": "n", "type": "numeric(5,2)", "value": 1.50, "optional": True, "default": None},
    ]


def test_debezium_writes_envelopes(server: EmbeddedPostgres, until: str, tmp_path: Path) -> None:
    done = _recv(server, tmp_path, until, "debezium", "-o", "topic.prefix=shop", "-o", "decimal.handling.mode=string")
    assert done.returncode == 0, done.stderr
    [event] = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert (event["op"], event["before"], event["after"]) == ("c", None, {"id": 1, "v": None, "n": "1.50"})
    assert (event["source"]["name"], event["source"]["table"]) == ("shop", SLOT)


def test_pgoutput_writes_messages(server: EmbeddedPostgres, until: str, tmp_path: Path) -> None:
    done = _recv(server, tmp_path, until, "pgoutput")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "out").read_bytes()
    received, start = [], 0
    for end in (place for place, byte in enumerate(written) if byte == ord("\n")):
        with suppress(ProtocolError):  # a newline within a message
            received.append(read_message(written[start:end]))
            start = end + 1
    assert [type(message) for message in received] == [Begin, Relation, Insert, Commit]
    assert start == len(written)


def test_a_wrong_option_is_refused_before_the_server_is_asked(tmp_path: Path, server: EmbeddedPostgres) -> None:
    done = _recv(server, tmp_path, "0/1", "wal2json", "-o", "include-xid=1")
    assert done.returncode != 0
    assert 'wal2json has no option "include-xid"' in done.stderr
