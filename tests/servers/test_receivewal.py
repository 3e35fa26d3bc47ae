"""receivewal writes what pg_receivewal writes, run side by side, before and after a promotion."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.clients import program
from tests.servers.conftest import give_to_server
from tests.waiting import eventually
from wal2lake.errors import LogMismatchError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import Connection, connect, replication_connection
from wal2lake.postgres.physical.backup import BackupOptions, base_backup
from wal2lake.postgres.physical.receivelog import ReceiveWalOptions, receive_wal
from wal2lake.postgres.physical.segments import WalPosition
from wal2lake.postgres.slots import create_physical_slot, drop_slot, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.servers


class SideBySide:
    """Our receiver and pg_receivewal, each with a slot and a folder of its own, until the block ends."""

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        self.ours, self.theirs = folder / "ours", folder / "theirs"
        self._dsn = server.dsn
        self._stop = threading.Event()
        self.failures: list[Wal2LakeError] = []
        self.timelines: list[WalPosition] = []
        for path in (self.ours, self.theirs):
            path.mkdir()
            with replication_connection(server.dsn) as pgconn:
                create_physical_slot(pgconn, f"wal_{path.name}", reserve_wal=True)

    def __enter__(self) -> SideBySide:
        command = [program("pg_receivewal"), "-d", self._dsn, "-D", str(self.theirs), "-S", "wal_theirs", "-n", "-s1"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.await_(lambda: all(any(path.iterdir()) for path in (self.ours, self.theirs)))
        return self

    def _run(self) -> None:
        try:
            options = ReceiveWalOptions("wal_ours", status_interval_s=0.2)
            receive_wal(self._dsn, self.ours, options, self._stop, on_timeline=self.timelines.append)
        except Wal2LakeError as error:
            self.failures.append(error)

    def __exit__(self, *failure: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=30)
        self._stop.set()
        self._thread.join(30)
        with connect(self._dsn) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")

    def await_(self, condition: Callable[[], bool]) -> None:
        eventually(condition, self.failures)


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def complete(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix not in {".partial", ".tmp"}}


def write_segments(server: EmbeddedPostgres, count: int) -> None:
    for _ in range(count):
        server.psql("SELECT pg_logical_emit_message(false, 'wal', repeat('x', 100000)), pg_switch_wal()")


def write_a_little(server: EmbeddedPostgres) -> None:
    """Some WAL in the middle of a segment, flushed."""
    server.psql("SELECT pg_logical_emit_message(true, 'wal', 'half a segment')")


def test_segments_are_pg_receivewals(versioned: EmbeddedPostgres, folder: Path) -> None:
    with SideBySide(versioned, folder) as both:
        write_segments(versioned, 3)
        end = LSN.parse(versioned.psql("SELECT pg_current_wal_lsn()")) & -(16 << 20)
        with connect(versioned.dsn) as connection:
            both.await_(lambda: {require_slot_lsn(connection, f"wal_{whose}") for whose in ("ours", "theirs")} == {end})
    ours, theirs = complete(both.ours), complete(both.theirs)
    assert ours == theirs and len(ours) >= 3
    assert all((versioned.data_dir / "pg_wal" / name).read_bytes() == content for name, content in ours.items())


def require_slot_lsn(connection: Connection, slot: str) -> LSN:
    state = slot_state(connection, slot)
    assert state is not None and state.restart_lsn is not None
    return state.restart_lsn


def test_it_goes_on_where_it_stopped(versioned: EmbeddedPostgres, folder: Path) -> None:
    with replication_connection(versioned.dsn) as pgconn, connect(versioned.dsn) as connection:
        create_physical_slot(pgconn, "wal_again", reserve_wal=True)
        for _ in range(3):
            write_segments(versioned, 1)
            write_a_little(versioned)
            until = LSN.parse(versioned.psql("SELECT pg_current_wal_flush_lsn()"))
            options = ReceiveWalOptions("wal_again", until_lsn=until, synchronous=True)
            end = receive_wal(versioned.dsn, folder, options)
            assert end is not None and end.lsn >= until
            assert require_slot_lsn(connection, "wal_again") == end.lsn
        drop_slot(pgconn, "wal_again", wait=True)
    whole = complete(folder)
    assert len(whole) >= 2
    assert all((versioned.data_dir / "pg_wal" / name).read_bytes() == content for name, content in whole.items())


def test_it_follows_a_promotion(versioned: EmbeddedPostgres, folder: Path) -> None:
    root = folder / "standby"
    base_backup(versioned.dsn, root / "data", BackupOptions(checkpoint="fast", sync=False))
    (root / "data" / "standby.signal").touch()
    give_to_server(root)
    settings = {**versioned.settings, "primary_conninfo": versioned.dsn, "hot_standby": "on"}
    with (
        EmbeddedPostgres(settings=settings, data_dir=root, install=versioned.install) as standby,
        SideBySide(standby, folder) as both,
    ):
        write_segments(versioned, 2)
        both.await_(lambda: min(len(complete(both.ours)), len(complete(both.theirs))) >= 1)
        write_a_little(versioned)
        end = versioned.psql("SELECT pg_current_wal_flush_lsn()")
        both.await_(lambda: standby.psql(f"SELECT pg_last_wal_receive_lsn() >= '{end}'") == "t")
        standby.psql("SELECT pg_promote()")
        write_segments(standby, 2)
        both.await_(
            lambda: all(sum(name.startswith("00000002") for name in complete(p)) >= 3 for p in (both.ours, both.theirs))
        )
    ours, theirs = complete(both.ours), complete(both.theirs)
    assert ours == theirs
    assert "00000002.history" in ours
    assert [(switch.timeline, switch.lsn > 0) for switch in both.timelines] == [(2, True)]
    old = [[name for name in listing(path) if name.startswith("00000001")] for path in (both.ours, both.theirs)]
    assert old[0] == old[1]
    assert old[0][-1].endswith(".partial")
    with pytest.raises(LogMismatchError, match="timeline 2"):
        receive_wal(versioned.dsn, both.ours, ReceiveWalOptions(reconnect_s=None))
