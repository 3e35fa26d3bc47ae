"""The commands of docs/moving.md, word for word: folders that are moved, a new log beside the lake, an upgrade."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.documents.shown import Shown, on_page, ran
from tests.servers.clients import Clients
from tests.servers.conftest import give_to_server
from tests.servers.test_failover import Place
from tests.waiting import eventually
from wal2lake.capture import Capture
from wal2lake.changelog.log import ChangeLog
from wal2lake.config import Config
from wal2lake.errors import LogMismatchError, Wal2LakeError
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers

PAGE = Path(__file__).parents[2] / "docs" / "moving.md"


def commands(section: str) -> list[Shown]:
    """What the section's first block has."""
    lines = PAGE.read_text().splitlines()
    (begin,) = [number for number, line in enumerate(lines, 1) if line.startswith(f"## {section}")]
    first = min(item.line for item in on_page("docs/moving.md", "sh") if item.line > begin)
    return [item for item in on_page("docs/moving.md", "sh") if item.line == first]


class Shell:
    """What a user types in ``folder``; `wal2lake run` goes on beside the lines that follow, until ``end``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = os.environ | {"PATH": path}
        self._running: subprocess.Popen[str] | None = None

    def follow(self, item: Shown) -> str:
        said = self.type(item.text)
        ran(item)
        for same in on_page("docs/recovery.md", "sh"):  # which has a block of this page's, word for word
            if same.text == item.text:
                ran(same)
        return said

    def type(self, line: str) -> str:
        if line == "wal2lake run":
            command = [sys.executable, "-m", "wal2lake", "run"]
            self._running = subprocess.Popen(command, cwd=self._folder, stderr=subprocess.PIPE, text=True)
            return ""
        done = subprocess.run(
            line, shell=True, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def end(self) -> None:
        """Ctrl-C, and a clean end."""
        if self._running is not None:
            process, self._running = self._running, None
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=200)
            assert process.returncode == 0, said

    def kill(self) -> None:
        if self._running is not None:
            self._running.terminate()
            self._running.communicate()


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    made = Shell(folder)
    yield made
    made.kill()


def ids(table: Path) -> list[int]:
    made = any((table / "_delta_log").glob("*.json"))
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) if made else []


@pytest.mark.documents
def test_a_new_log_beside_the_lake_and_other_folders(folder: Path, shell: Shell) -> None:
    """The table's history goes on in both: what readers have is exchanged by commits, never missing."""
    with EmbeddedPostgres(18) as server:
        server.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        server.psql("CREATE PUBLICATION wal2lake FOR TABLE t")
        shell.type(f"wal2lake init --dsn '{server.dsn}'")
        shell.type("wal2lake run")
        table = folder / "wal2lake/lake/public/t"
        eventually(lambda: ids(table) == [1], timeout_s=180, poll_s=0.2)
        shell.end()
        server.psql("INSERT INTO t VALUES (2)")
        *lines, verify = commands("A new change log beside the lake")
        for line in lines:
            shell.follow(line)
        eventually(lambda: ids(table) == [1, 2], timeout_s=180, poll_s=0.2)
        server.psql("INSERT INTO t VALUES (3)")
        assert "equal" in shell.follow(verify)
        (again,) = [item for item in on_page("docs/moving.md", "sh") if item.text == "wal2lake resync --all"]
        before = DeltaTable(str(table)).version()
        shell.follow(again)
        eventually(lambda: DeltaTable(str(table)).version() > before, timeout_s=180, poll_s=0.2)
        shell.end()
        version = DeltaTable(str(table)).version()
        server.psql("INSERT INTO t VALUES (4)")
        for line in commands("Another folder"):
            shell.follow(line)
        table = folder / "elsewhere/lake/public/t"
        eventually(lambda: ids(table) == [1, 2, 3, 4], timeout_s=180, poll_s=0.2)
        assert "equal" in shell.type("wal2lake verify")
        assert DeltaTable(str(table)).version() == version + 1  # nothing was read again
        shell.end()


@contextmanager
def capturing(config: Config) -> Iterator[None]:
    stop, errors = threading.Event(), list[Wal2LakeError]()

    def run() -> None:
        try:
            Capture(config).run(stop)
        except Wal2LakeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        eventually(lambda: ChangeLog.exists(config.log.path), errors)
        yield
    finally:
        stop.set()
        thread.join(30)
    assert errors == []


def test_an_upgrade_by_pg_upgrade(folder: Path, shell: Shell, clients: Clients) -> None:
    """17 to 18, by PostgreSQL's own program, which takes the slot along. Spark is not needed for it here."""
    install, settings = clients.require(17).parent, {"synchronous_commit": "on"}
    with EmbeddedPostgres(17, settings, install=install, data_dir=folder / "old") as old:
        old.psql("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION wal2lake FOR TABLE t")
        shell.type(f"wal2lake init --dsn '{old.dsn}'")
        place = Place(Config.load(folder / "wal2lake.toml"))
        with capturing(place.config):
            old.psql("INSERT INTO t VALUES (1)")
            eventually(lambda: ChangeLog.open(place.config.log.path).segments)
            place.run()
            old.stop()  # which waits until the slot has been given all
    with upgraded(folder, install) as new:
        assert new.psql("SELECT slot_name FROM pg_replication_slots") == "wal2lake"
        toml = folder / "wal2lake.toml"
        toml.write_text(toml.read_text().replace(old.dsn, new.dsn))
        place = Place(Config.load(toml))
        with pytest.raises(
            LogMismatchError,
            match=r"belongs to system_id .* every table must be read again: `wal2lake drop --with-log`",
        ):
            Capture(place.config).run(threading.Event())
        drop, run, verify = commands("An upgrade of the server")
        assert (run.text, verify.text) == ("wal2lake run", "wal2lake verify")
        new.psql("INSERT INTO t VALUES (2)")
        shell.type(drop.text)
        with capturing(place.config):
            new.psql("INSERT INTO t VALUES (3)")
            place.run()
            eventually(lambda: ChangeLog.open(place.config.log.path).segments)
            place.run()
        assert place.rows("t") == [1, 2, 3]


@contextmanager
def upgraded(folder: Path, install: Path) -> Iterator[EmbeddedPostgres]:
    """A server 18 of what the 17 in ``folder`` / old had, which is stopped."""
    new, root = EmbeddedPostgres(18, {"synchronous_commit": "on"}, data_dir=folder / "new"), folder / "new"
    root.mkdir()
    give_to_server(root)
    made = ("-D", str(new.data_dir), "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync")
    new.run_program("initdb", *made, "--no-data-checksums")
    options = "-c wal_level=logical"
    new.run_program(
        "pg_upgrade", "-U", "postgres", "-b", str(install / "bin"), "-B", str(new.bin_dir), "-d",
        str(folder / "old" / "data"), "-D", str(new.data_dir), "-o", options, "-O", options, "--no-sync",
        "--socketdir", str(root),
    )  # fmt: skip
    with new:
        yield new
