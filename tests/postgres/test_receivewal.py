"""What receivewal tells the server and the user, and what it leaves in the folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wal2lake.errors import ConnectError, InterruptedByUser, ProtocolError, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import replication_connection
from wal2lake.postgres.physical.receivelog import ReceiveWalOptions, receive_wal
from wal2lake.postgres.slots import create_physical_slot, drop_slot
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.walsender import FakeWalsender

pytestmark = pytest.mark.server

OnWait = Callable[[Wal2LakeError, float], None]


def write_wal(server: EmbeddedPostgres) -> LSN:
    """Some WAL in the middle of a segment, flushed; its end."""
    server.psql("SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'wal', 'half a segment')")
    return LSN.parse(server.psql("SELECT pg_current_wal_flush_lsn()"))


def await_written(server: EmbeddedPostgres, end: LSN) -> None:
    server.psql(
        f"DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE write_lsn >= '{end}') "
        "LOOP PERFORM pg_sleep(0.05), pg_stat_clear_snapshot(); END LOOP; END $$"
    )


@contextmanager
def receiving(
    server: EmbeddedPostgres, folder: Path, options: ReceiveWalOptions, on_wait: OnWait | None = None
) -> Iterator[None]:
    """receive_wal runs, and has told the server of all WAL that there was."""
    stop = threading.Event()
    arguments = (server.dsn, folder, options, stop)
    receiver = threading.Thread(target=receive_wal, args=arguments, kwargs={"on_wait": on_wait})
    receiver.start()
    try:
        await_written(server, write_wal(server))
        yield
    finally:
        stop.set()
        receiver.join(30)


@pytest.fixture
def any_standby(server: EmbeddedPostgres) -> Iterator[None]:
    """Whoever reports a flush position is a synchronous standby."""
    server.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    server.psql("SELECT pg_reload_conf()")
    yield
    server.psql("ALTER SYSTEM RESET synchronous_standby_names")
    server.psql("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("slot", "synchronous", "state"),
    [(None, False, "async|t"), ("standing", False, "sync|f"), (None, True, "sync|f")],
)
def test_only_a_slot_or_synchronous_makes_a_synchronous_standby(
    server: EmbeddedPostgres, tmp_path: Path, any_standby: None, slot: str | None, synchronous: bool, state: str
) -> None:
    with replication_connection(server.dsn) as pgconn:
        if slot:
            create_physical_slot(pgconn, slot, reserve_wal=True)
        with receiving(server, tmp_path, ReceiveWalOptions(slot, synchronous=synchronous, status_interval_s=0.1)):
            told = "SELECT sync_state, flush_lsn IS NULL FROM pg_stat_replication WHERE state = 'streaming'"
            assert server.psql(told) == state
        if slot:
            drop_slot(pgconn, slot, wait=True)


def test_a_new_segments_entry_is_durable_before_its_content(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = list[str](), os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    receive_wal(server.dsn, tmp_path, ReceiveWalOptions(until_lsn=write_wal(server), synchronous=True))
    first = next(place for place, name in enumerate(synced) if name.endswith(".partial"))
    assert str(tmp_path) in synced[:first]


@pytest.mark.timeout(30)
def test_a_server_that_was_never_reached_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectError):
        receive_wal("host=127.0.0.1 port=1", tmp_path)


def test_a_lost_connection_is_told_and_made_again(server: EmbeddedPostgres, tmp_path: Path) -> None:
    told = list[tuple[type[Wal2LakeError], float]]()
    options = ReceiveWalOptions(status_interval_s=0.1, reconnect_s=0.2)
    with receiving(server, tmp_path, options, lambda error, seconds: told.append((type(error), seconds))):
        server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        await_written(server, write_wal(server))
    assert told[0] == (ConnectError, 0.2)


def test_a_stop_before_the_end_that_was_asked_for_is_no_success(server: EmbeddedPostgres, tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    with pytest.raises(InterruptedByUser, match="FFFFFFF/0"):
        receive_wal(server.dsn, tmp_path, ReceiveWalOptions(until_lsn=LSN.parse("FFFFFFF/0")), stop)


def test_nothing_is_no_position(server: EmbeddedPostgres, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert receive_wal(server.dsn, tmp_path, stop=stop) is None


@pytest.mark.parametrize(("timeline", "switch_point"), [(1, "0/2000000"), (2, "0/3000000")])
def test_a_timeline_that_cannot_follow_is_refused(tmp_path: Path, timeline: int, switch_point: str) -> None:
    """And not asked for again and again."""
    answers = {"wal_segment_size": [("16MB",)]}
    with FakeWalsender(lambda session: session.end_copy([(str(timeline), switch_point)]), answers) as sender:
        with pytest.raises(ProtocolError, match=f"says that timeline {timeline} follows it at {switch_point}"):
            receive_wal(sender.dsn, tmp_path)
        assert len([query for query in sender.queries if query.startswith("START_REPLICATION")]) == 1
