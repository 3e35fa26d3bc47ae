"""`wal2lake recv --python-plugin` on a real slot: what stands in the file, and what the server is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.waiting import eventually
from wal2lake.lsn import LSN
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

SLOT = "plugged"
FAILING = '''
from wal2lake.decoding.plugins.test_decoding import TestDecoding


class Failing(TestDecoding):
    """test_decoding that cannot bear 13."""

    def change_cb(self, ctx, txn, relation, change):
        super().change_cb(ctx, txn, relation, change)
        if change.newtuple[0] == "13":
            raise ValueError(change.newtuple)
'''


@pytest.fixture
def slot(server: EmbeddedPostgres) -> Iterator[str]:
    server.psql(f"""
        CREATE TABLE plugged (id int PRIMARY KEY, note text); CREATE PUBLICATION {SLOT} FOR TABLE plugged;
        SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput');
    """)
    yield SLOT
    server.psql(f"SELECT pg_drop_replication_slot('{SLOT}'); DROP PUBLICATION {SLOT}; DROP TABLE plugged")


def _recv(
    server: EmbeddedPostgres, folder: Path, *arguments: str, until: str, dsn: str = ""
) -> subprocess.CompletedProcess[str]:
    command = _command(server, *arguments, until=until, dsn=dsn)
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=False)


def _command(server: EmbeddedPostgres, *arguments: str, until: str, dsn: str = "") -> list[str]:
    return [
        sys.executable, "-m", "wal2lake", "recv", SLOT, "--dsn", dsn or server.dsn, "--publication", SLOT, "--no-loop",
        "--until-lsn", until, *arguments,
    ]  # fmt: skip


def _commit(server: EmbeddedPostgres, *statements: str) -> str:
    """One transaction; the LSN of its end."""
    server.psql("SET synchronous_commit = on; BEGIN; " + "; ".join(statements) + "; COMMIT")
    return server.psql("SELECT pg_current_wal_lsn()")


def _insert(server: EmbeddedPostgres, *ids: int) -> str:
    return _commit(server, *(f"INSERT INTO plugged VALUES ({number}, repeat('x', 500))" for number in ids))


def _lines(*transactions: list[int]) -> list[str]:
    lines = []
    for ids in transactions:
        rows = [f"table public.plugged: INSERT: id[integer]:{i} note[text]:'{'x' * 500}'" for i in ids]
        lines += ["BEGIN", *rows, "COMMIT"]
    return lines


def test_the_file_has_what_the_plugin_writes(server: EmbeddedPostgres, slot: str, tmp_path: Path) -> None:
    _insert(server, 1, 2)
    until = _insert(server, 3)
    arguments = ("--python-plugin", "test_decoding", "-o", "include-xids=0", "--file", "out")
    done = _recv(server, tmp_path, *arguments, until=until)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text().splitlines() == _lines([1, 2], [3])


def test_as_json_each_piece_has_its_place(server: EmbeddedPostgres, slot: str, tmp_path: Path) -> None:
    until = _insert(server, 1)
    done = _recv(server, tmp_path, "--python-plugin", "test_decoding", "--format", "json", until=until)
    begin, row, commit = map(json.loads, done.stdout.splitlines())
    assert begin["data"] == f"BEGIN {begin['xid']}" and row["xid"] == commit["xid"] == begin["xid"]
    assert LSN.parse(begin["lsn"]) <= LSN.parse(row["lsn"]) < LSN.parse(commit["lsn"]) <= LSN.parse(until)


def test_streamed_from_the_server_it_is_the_same_file(server: EmbeddedPostgres, slot: str, tmp_path: Path) -> None:
    """Three transactions at once, each too large for logical_decoding_work_mem, one rolled back, one in part."""
    begun = "BEGIN; SET LOCAL synchronous_commit = on"
    with psycopg.connect(server.dsn, autocommit=True) as a, psycopg.connect(server.dsn, autocommit=True) as b:
        for connection in (a, b):
            connection.execute(begun)
        for part in range(3):
            for offset, connection in ((0, a), (10_000, b)):
                first = offset + part * 1000
                rows = f"SELECT i, repeat('x', 500) FROM generate_series({first}, {first + 299}) i"
                connection.execute(f"SAVEPOINT s{part}; INSERT INTO plugged {rows}")
                if part == 1:
                    connection.execute("ROLLBACK TO SAVEPOINT s1")
        b.execute("COMMIT")
        a.execute("COMMIT")
    until = server.psql("SELECT pg_current_wal_lsn()")
    server.psql(f"SELECT pg_copy_logical_replication_slot('{SLOT}', 'plugged_copy')")
    small = f"{server.dsn} options='-c logical_decoding_work_mem=64kB'"
    arguments = ("--python-plugin", "test_decoding", "-o", "include-xids=0")
    streamed = _recv(server, tmp_path, *arguments, "--streaming", "on", until=until, dsn=small)
    server.psql(f"SELECT pg_drop_replication_slot('{SLOT}')")
    server.psql(f"SELECT pg_copy_logical_replication_slot('plugged_copy', '{SLOT}')")
    server.psql("SELECT pg_drop_replication_slot('plugged_copy')")
    whole = _recv(server, tmp_path, *arguments, until=until)
    assert streamed.returncode == whole.returncode == 0, streamed.stderr + whole.stderr
    assert streamed.stdout == whole.stdout
    ids = [[*range(o, o + 300), *range(o + 2000, o + 2300)] for o in (10_000, 0)]
    assert streamed.stdout.splitlines() == _lines(*ids)


def test_a_plugin_that_fails_loses_and_repeats_nothing(server: EmbeddedPostgres, slot: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING)
    _insert(server, 1)
    good = server.psql("SELECT pg_current_wal_lsn()")
    until = _insert(server, 12, 13, 14)
    _insert(server, 15)
    end = server.psql("SELECT pg_current_wal_lsn()")
    arguments = ("--python-plugin", "mine:Failing", "-o", "include-xids=0", "--file", "out")
    for _ in range(2):
        done = _recv(server, tmp_path, *arguments, until=end)
        assert done.returncode == 23
        assert "failed in change_cb: ValueError at mine.py" in done.stderr and "LSN " in done.stderr
        assert "x" * 10 not in done.stderr
        assert (tmp_path / "out").read_text().splitlines() == _lines([1])
    confirmed = server.psql(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{SLOT}'")
    assert LSN.parse(good) <= LSN.parse(confirmed) < LSN.parse(until)
    (tmp_path / "mine.py").write_text(FAILING.replace('"13"', '"never"'))
    done = _recv(server, tmp_path, *arguments, until=end)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text().splitlines() == _lines([1], [12, 13, 14], [15])


SLOW = """
import pathlib, time
from wal2lake.decoding.plugins.test_decoding import TestDecoding


class Slow(TestDecoding):
    def change_cb(self, ctx, txn, relation, change):
        if change.newtuple[0] == "13":
            pathlib.Path("working").touch()
            time.sleep({seconds})
        super().change_cb(ctx, txn, relation, change)
"""


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_the_server_hears_of_us_while_a_callback_works(
    server: EmbeddedPostgres, slot: str, tmp_path: Path, streaming: str
) -> None:
    """One row takes three times as long as the server waits for a sign of life, and what follows fills the socket."""
    (tmp_path / "mine.py").write_text(SLOW.format(seconds=3))
    until = _commit(server, "INSERT INTO plugged SELECT i, repeat('x', 500) FROM generate_series(13, 9000) i")
    impatient = f"{server.dsn} options='-c wal_sender_timeout=1s -c logical_decoding_work_mem=64kB'"
    arguments = ("--python-plugin", "mine:Slow", "-o", "include-xids=0", "--streaming", streaming, "-s", "0")
    done = _recv(server, tmp_path, *arguments, until=until, dsn=impatient)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == _lines([*range(13, 9001)])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_a_callback_ends_at_once_and_the_next_run_goes_on(
    server: EmbeddedPostgres, slot: str, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "mine.py").write_text(SLOW.format(seconds=50))
    _insert(server, 1)
    until = _insert(server, 12, 13, 14)
    arguments = ("--python-plugin", "mine:Slow", "-o", "include-xids=0", "--file", "out")
    process = subprocess.Popen(_command(server, *arguments, until=until), stderr=subprocess.PIPE, cwd=tmp_path)
    eventually((tmp_path / "working").exists, alive=lambda: process.poll() is None)
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130 and b"Run it again: it goes on where it stopped" in told
    assert (tmp_path / "out").read_text().splitlines() == _lines([1])
    (tmp_path / "mine.py").write_text(SLOW.format(seconds=0))
    assert _recv(server, tmp_path, *arguments, until=until).returncode == 0
    assert (tmp_path / "out").read_text().splitlines() == _lines([1], [12, 13, 14])


BROKEN = """
import pathlib
from wal2lake.decoding.plugins.test_decoding import TestDecoding


class Broken(TestDecoding):
    def {callback}(self, *arguments):
        super().{callback}(*arguments)
        if pathlib.Path("broken").exists():
            raise ValueError
"""


@pytest.mark.parametrize("callback", ["stream_change_cb", "stream_commit_cb", "stream_truncate_cb"])
def test_what_fails_in_a_chunk_leaves_whole_transactions_in_the_file(
    server: EmbeddedPostgres, slot: str, tmp_path: Path, callback: str
) -> None:
    (tmp_path / "mine.py").write_text(BROKEN.format(callback=callback))
    (tmp_path / "broken").touch()
    _insert(server, 1)
    large = "INSERT INTO plugged SELECT i, repeat('x', 500) FROM generate_series(10, 900) i"
    until = _commit(server, large, "TRUNCATE plugged", large)
    small = f"{server.dsn} options='-c logical_decoding_work_mem=64kB'"
    options = ("-o", "include-xids=0", "-o", "stream-changes=1", "--streaming", "on")
    arguments = ("--python-plugin", "mine:Broken", *options)
    done = _recv(server, tmp_path, *arguments, "--file", "out", until=until, dsn=small)
    assert done.returncode == 23 and f"failed in {callback}: ValueError at mine.py, line 10" in done.stderr
    assert (tmp_path / "out").read_text().splitlines() == _lines([1])
    (tmp_path / "broken").unlink()
    assert _recv(server, tmp_path, *arguments, "--file", "out", until=until, dsn=small).returncode == 0
    told = (tmp_path / "out").read_text().splitlines()
    assert told[:3] == _lines([1]) and told[3] == "opening a streamed block for transaction"
    assert told[-1] == "committing streamed transaction"
    assert told.count("streaming change for transaction") == 2 * 891
    assert told.count("streaming truncate for transaction") == 1


def test_an_option_is_refused_before_the_slot_is_made(server: EmbeddedPostgres, tmp_path: Path) -> None:
    arguments = ("--create-slot", "--python-plugin", "test_decoding", "-o", "nonsense=1")
    done = _recv(server, tmp_path, *arguments, until="0/0")
    assert done.returncode == 2 and 'option "nonsense" = "1" is unknown' in done.stderr
    assert server.psql("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'plugged'") == "0"
