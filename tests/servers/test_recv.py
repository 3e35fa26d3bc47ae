"""recv writes what pg_recvlogical writes, byte for byte, from a copy of the same slot."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.servers.clients import program
from tests.waiting import eventually
from wal2lake.cli.protocol import app
from wal2lake.errors import ConnectError, ServerConfigError, SlotInUseError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.messages import Begin, Commit, Insert
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.logical import LogicalStream, decoded
from wal2lake.postgres.outputs import RawOutput
from wal2lake.postgres.plugin_output import json_output
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slot_sql import slot_changes
from wal2lake.postgres.slots import copy_slot, create_slot, drop_slot, require_slot
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

PGOUTPUT = PgoutputOptions(("recv",))
WORKLOAD = """
DROP TABLE IF EXISTS recv; DROP PUBLICATION IF EXISTS recv;
CREATE TABLE recv (a int PRIMARY KEY, b text, c bytea);
CREATE PUBLICATION recv FOR TABLE recv;
"""


class Prepared:
    """A server with a slot of each plugin and some transactions behind them; slots are dropped at the end."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.dsn = server.dsn
        server.psql(WORKLOAD)
        with replication_connection(self.dsn) as pgconn:
            for plugin in ("test_decoding", "pgoutput"):
                create_slot(pgconn, f"recv_{plugin}", plugin=plugin)
        for i in range(10):
            first, last = i * 20, i * 20 + 19
            server.psql(
                f"""
                BEGIN;
                INSERT INTO recv SELECT g, repeat('x', g), '\\x0a00ff' FROM generate_series({first}, {last}) g;
                UPDATE recv SET b = E'two\\nlines' WHERE a = {first};
                DELETE FROM recv WHERE a = {first + 1};
                COMMIT;
                """
            )
        self.end = LSN.parse(server.psql("SELECT pg_current_wal_insert_lsn()"))

    def copy(self, plugin: str, name: str) -> str:
        with connect(self.dsn) as connection:
            copy_slot(connection, f"recv_{plugin}", name)
        return name

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *failure: object) -> None:
        with connect(self.dsn) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def run_pg_recvlogical(
    dsn: str, slot: str, path: Path, until: LSN, options: tuple[tuple[str, str | None], ...]
) -> None:
    command = [program("pg_recvlogical"), "-d", dsn, "-S", slot, "--start", "-f", str(path), "-E", str(until)]
    subprocess.run([*command, *(part for name, value in options for part in ("-o", f"{name}={value}"))], check=True)


@pytest.mark.parametrize("plugin", ["test_decoding", "pgoutput"])
def test_raw_output_is_pg_recvlogicals(versioned: EmbeddedPostgres, folder: Path, plugin: str) -> None:
    with Prepared(versioned) as prepared, connect(prepared.dsn) as connection:
        options = PGOUTPUT.build(connection.info.server_version) if plugin == "pgoutput" else ()
        every = list(slot_changes(connection, f"recv_{plugin}", peek=True, plugin_options=options))
        for place, until in enumerate((every[70].start_lsn, LSN(every[-1].start_lsn - 1), prepared.end)):
            ours, theirs = folder / f"ours{place}", folder / f"theirs{place}"
            with closing(RawOutput(ours)) as output:
                chosen = RecvOptions(until_lsn=until, plugin_options=options)
                end = recv(prepared.dsn, prepared.copy(plugin, f"ours{place}"), output, chosen)
            run_pg_recvlogical(prepared.dsn, prepared.copy(plugin, f"theirs{place}"), theirs, until, options)
            assert ours.read_bytes() == theirs.read_bytes() != b""
            assert require_slot(connection, f"ours{place}").confirmed_flush_lsn == end
            assert (
                require_slot(connection, f"theirs{place}").confirmed_flush_lsn
                == require_slot(connection, f"ours{place}").confirmed_flush_lsn
            )


def test_the_slots_sql_functions_say_what_the_stream_says(versioned: EmbeddedPostgres) -> None:
    with Prepared(versioned) as prepared, connect(prepared.dsn) as connection:
        asked = list(decoded(slot_changes(connection, "recv_pgoutput", peek=True, plugin_options=PGOUTPUT), PGOUTPUT))
        with LogicalStream(prepared.dsn, "recv_pgoutput", plugin_options=PGOUTPUT) as stream:
            streamed = []
            for change in decoded(stream, PGOUTPUT):
                streamed.append(change)
                if len(streamed) == len(asked):
                    break
            stream.acknowledge(LSN(streamed[-1].lsn))
            stream.finish()
        assert [change.received for change in asked] == [change.received for change in streamed]
        assert {Begin, Insert, Commit} <= {type(change.received.message) for change in asked}
        assert require_slot(connection, "recv_pgoutput").confirmed_flush_lsn == streamed[-1].lsn
        assert list(slot_changes(connection, "recv_pgoutput", plugin_options=PGOUTPUT)) == []


def test_limits_and_text_of_the_sql_functions(versioned: EmbeddedPostgres) -> None:
    with Prepared(versioned) as prepared, connect(prepared.dsn) as connection:
        first = list(slot_changes(connection, "recv_test_decoding", binary=False, upto_nchanges=1))
        assert (first[0].payload[:5], first[-1].payload[:6]) == (b"BEGIN", b"COMMIT")
        assert sum(change.payload.startswith(b"COMMIT") for change in first) == 1
        upto = list(slot_changes(connection, "recv_test_decoding", upto_lsn=prepared.end))
        assert upto[-1].start_lsn <= prepared.end
        assert list(slot_changes(connection, "recv_test_decoding", upto_lsn=prepared.end)) == []


def test_json_lines(versioned: EmbeddedPostgres, folder: Path) -> None:
    with Prepared(versioned) as prepared:
        with closing(json_output(folder / "lines", PGOUTPUT)) as output:
            recv(prepared.dsn, "recv_pgoutput", output, RecvOptions(until_lsn=prepared.end, plugin_options=PGOUTPUT))
        lines = [json.loads(line) for line in (folder / "lines").read_text().splitlines()]
    row = next(line for line in lines if line["message"] == "Insert")
    assert (row["relation"], row["new"]) == ("public.recv", {"a": "0", "b": "", "c": "\\x0a00ff"})
    update = next(line for line in lines if line["message"] == "Update")
    assert update["new"]["b"] == "two\nlines"
    assert next(line for line in lines if line["message"] == "Delete")["key"] == {"a": "1"}


@pytest.mark.parametrize(
    ("versioned", "option", "value"),
    [(13, "streaming", "on"), (14, "two_phase", "on"), (15, "streaming", "parallel"), (15, "origin", "none")],
    indirect=["versioned"],
)
def test_what_the_server_does_not_know_makes_no_slot(
    versioned: EmbeddedPostgres, folder: Path, option: str, value: str
) -> None:
    arguments = ["recv", "recv_old", "--create-slot", "--publication", "p", "-o", f"{option}={value}"]
    done = CliRunner().invoke(app, [*arguments, "--file", str(folder / "out"), "--dsn", versioned.dsn])
    assert isinstance(done.exception, ServerConfigError)
    assert f"does not know pgoutput's {'streaming' if option == 'streaming' else f'option {option}'}" in str(
        done.exception
    )
    assert versioned.psql("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'recv_old'") == "0"


def test_a_lost_connection_is_made_again(versioned: EmbeddedPostgres, folder: Path) -> None:
    """Ending the walsender in mid-stream costs nothing that was not synced."""
    with Prepared(versioned) as prepared, closing(RawOutput(folder / "out")) as output:
        stop = threading.Event()
        options = RecvOptions(plugin_options=PGOUTPUT, fsync_interval_s=0.1, status_interval_s=0.1, reconnect_s=0.1)
        receiver = threading.Thread(target=recv, args=(prepared.dsn, "recv_pgoutput", output, options, stop))
        receiver.start()
        try:
            for marker in (1001, 1002):
                versioned.psql(f"INSERT INTO recv VALUES ({marker}, 'marker{marker}')")
                _await(folder / "out", f"marker{marker}".encode())
                versioned.psql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        finally:
            stop.set()
            receiver.join(30)
    assert not receiver.is_alive()


def _await(path: Path, text: bytes) -> None:
    eventually(lambda: path.exists() and text in path.read_bytes())


def test_without_reconnecting_the_error_is_told(versioned: EmbeddedPostgres, folder: Path) -> None:
    with Prepared(versioned) as prepared, closing(RawOutput(folder / "out")) as output:
        options = RecvOptions(plugin_options=PGOUTPUT, reconnect_s=None)
        with LogicalStream(prepared.dsn, "recv_pgoutput", plugin_options=PGOUTPUT), pytest.raises(SlotInUseError):
            recv(prepared.dsn, "recv_pgoutput", output, options)
        with pytest.raises(ConnectError):
            recv("host=127.0.0.1 port=1", "recv_pgoutput", output, options)


def test_dropping_a_slot_in_use_waits_when_told(versioned: EmbeddedPostgres) -> None:
    with Prepared(versioned) as prepared, replication_connection(prepared.dsn) as pgconn:
        with LogicalStream(prepared.dsn, "recv_pgoutput", plugin_options=PGOUTPUT), pytest.raises(SlotInUseError):
            drop_slot(pgconn, "recv_pgoutput")
        drop_slot(pgconn, "recv_pgoutput", wait=True)
