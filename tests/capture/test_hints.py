"""What an error says is done, to the letter, until changes are captured again: no hint leads round in a circle."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.cli.main import main
from wal2lake.cli.options import resolve
from wal2lake.errors import Wal2LakeError
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def keeping_little() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"max_slot_wal_keep_size": "1", "min_wal_size": "32MB"}) as server:
        server.psql("CREATE TABLE t (id int); CREATE PUBLICATION wal2lake FOR TABLE t")
        yield server


def _lose(server: EmbeddedPostgres) -> None:
    for _ in range(3):
        server.psql("SELECT pg_logical_emit_message(false, 'x', 'x'); SELECT pg_switch_wal(); CHECKPOINT")
    assert server.psql("SELECT wal_status FROM pg_replication_slots") == "lost"


def _advance(server: EmbeddedPostgres) -> None:
    server.psql("INSERT INTO t VALUES (0); SELECT pg_switch_wal()")
    server.psql("SELECT pg_replication_slot_advance('wal2lake', pg_current_wal_lsn())")


def _lose_log(log: Path) -> None:
    """A lake beside it had its changes."""
    write_deltalake(log.parent / "lake" / "public" / "t", pa.table({"id": [1]}))
    shutil.rmtree(log)


MISHAPS: dict[str, Callable[[EmbeddedPostgres, Path], object]] = {
    "the slot is dropped": lambda server, log: server.psql("SELECT pg_drop_replication_slot('wal2lake')"),
    "the slot is lost": lambda server, log: _lose(server),
    "the slot is ahead": lambda server, log: _advance(server),
    "the identity is damaged": lambda server, log: (log / "log.json").write_text("{}"),
    "the identity is gone": lambda server, log: (log / "log.json").unlink(),
    "the log is gone": lambda server, log: _lose_log(log),
}


class Capturing(threading.Thread):
    """`wal2lake capture` in this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.error = ""
        self.start()

    def run(self) -> None:
        try:
            Capture(resolve()).run(self.stop)
        except Wal2LakeError as error:
            self.error = str(error)  # it alone: the exception would keep what failed, and its lock

    def end(self) -> None:
        self.stop.set()
        self.join(60)
        assert not self.error


def _capture_something(server: EmbeddedPostgres, log: Path) -> None:
    capturing = Capturing()
    try:
        eventually(lambda: ChangeLog.exists(log), alive=capturing.is_alive)
        server.psql("INSERT INTO t VALUES (1)")
        eventually(lambda: ChangeLog.open(log).segments, alive=capturing.is_alive)
    finally:
        capturing.end()


@pytest.fixture(autouse=True)
def no_slot_is_left(keeping_little: EmbeddedPostgres) -> Iterator[None]:
    yield
    keeping_little.psql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.mark.parametrize("mishap", MISHAPS)
def test_what_a_hint_says_is_done_until_changes_are_captured_again(
    keeping_little: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mishap: str
) -> None:
    log = tmp_path / "wal2lake" / "log"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wal2lake.toml").write_text(f"[source]\ndsn = {json.dumps(keeping_little.dsn)}\n")
    _capture_something(keeping_little, log)
    MISHAPS[mishap](keeping_little, log)
    _follow_hints(monkeypatch)
    _capture_something(keeping_little, log)


def _follow_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    capturing = Capturing()
    try:
        eventually(lambda: not capturing.is_alive())
    finally:
        capturing.stop.set()
    commands = re.findall(r"`(wal2lake [^`]*)`", capturing.error)
    assert commands[-1] == "wal2lake run", capturing.error
    for command in commands[:-1]:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
