"""What recv acknowledges, and when its output can be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.waiting import eventually
from wal2lake.errors import ConnectError, InterruptedByUser, Wal2LakeError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.connection import connect, replication_connection
from wal2lake.postgres.outputs import RawOutput
from wal2lake.postgres.recvlogical import RecvOptions, recv
from wal2lake.postgres.slots import create_slot, drop_slot, slot_state
from wal2lake.testing.embedded import EmbeddedPostgres

pytestmark = pytest.mark.server

OnWait = Callable[[Wal2LakeError, float], None]
SLOT = "reading"
MESSAGES = PgoutputOptions((SLOT,), messages=True)


@pytest.fixture
def slot(server: EmbeddedPostgres) -> Iterator[str]:
    with replication_connection(server.dsn) as pgconn:
        create_slot(pgconn, SLOT)
    server.psql(f"CREATE PUBLICATION {SLOT}")
    yield SLOT
    server.psql(f"DROP PUBLICATION {SLOT}")
    with replication_connection(server.dsn) as pgconn:
        drop_slot(pgconn, SLOT, wait=True)


@contextmanager
def receiving(
    server: EmbeddedPostgres, path: Path, options: RecvOptions, *, dsn: str = "", on_wait: OnWait | None = None
) -> Iterator[None]:
    """recv runs and streams."""
    stop = threading.Event()
    with closing(RawOutput(path)) as output:
        arguments = (dsn or server.dsn, SLOT, output, options, stop)
        receiver = threading.Thread(target=recv, args=arguments, kwargs={"on_wait": on_wait})
        receiver.start()
        try:
            eventually(lambda: server.psql("SELECT state FROM pg_stat_replication") == "streaming")
            yield
        finally:
            stop.set()
            receiver.join(30)


def confirmed(server: EmbeddedPostgres) -> LSN:
    with connect(server.dsn) as connection:
        found = slot_state(connection, SLOT)
    assert found is not None and found.confirmed_flush_lsn is not None
    return found.confirmed_flush_lsn


def write(server: EmbeddedPostgres) -> LSN:
    """A transaction that is decoded, flushed; its end."""
    server.psql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'reading', 'read me')")
    return LSN.parse(server.psql("SELECT pg_current_wal_flush_lsn()"))


def test_a_start_ahead_of_all_wal_moves_the_slot_no_further_than_the_server_is(
    server: EmbeddedPostgres, slot: str, tmp_path: Path
) -> None:
    options = RecvOptions(plugin_options=MESSAGES, start_lsn=LSN.parse("FFFFFFF/0"), status_interval_s=0.1)
    with receiving(server, tmp_path / "out", options):
        replies = set[str]()  # the first is said on connecting, a later one knows where the server is
        eventually(lambda: replies.add(server.psql("SELECT reply_time FROM pg_stat_replication")) or len(replies) > 2)
        write(server)
    assert confirmed(server) <= LSN.parse(server.psql("SELECT pg_current_wal_insert_lsn()"))


@pytest.mark.parametrize("fsync_interval_s", [0, 60])
def test_what_has_come_can_be_read_at_once(
    server: EmbeddedPostgres, slot: str, tmp_path: Path, fsync_interval_s: float
) -> None:
    with receiving(server, tmp_path / "out", RecvOptions(plugin_options=MESSAGES, fsync_interval_s=fsync_interval_s)):
        write(server)
        eventually(lambda: b"read me" in (tmp_path / "out").read_bytes())


@pytest.mark.parametrize("fsync_interval_s", [0, 0.1])
def test_the_slot_moves_while_it_is_read(
    server: EmbeddedPostgres, slot: str, tmp_path: Path, fsync_interval_s: float
) -> None:
    options = RecvOptions(plugin_options=MESSAGES, status_interval_s=0.1, fsync_interval_s=fsync_interval_s)
    with receiving(server, tmp_path / "out", options):
        end = write(server)
        eventually(lambda: confirmed(server) >= end)


def test_when_the_server_asks_all_that_has_come_is_acknowledged(
    server: EmbeddedPostgres, slot: str, tmp_path: Path
) -> None:
    """It asks at half of wal_sender_timeout, and when it is to stop."""
    options = RecvOptions(plugin_options=MESSAGES, status_interval_s=0, fsync_interval_s=60)
    with receiving(server, tmp_path / "out", options, dsn=f"{server.dsn} options='-c wal_sender_timeout=2s'"):
        end = write(server)
        eventually(lambda: confirmed(server) >= end)


@pytest.mark.timeout(30)
def test_a_server_that_was_never_reached_is_told_at_once(tmp_path: Path) -> None:
    with closing(RawOutput(tmp_path / "out")) as output, pytest.raises(ConnectError):
        recv("host=127.0.0.1 port=1", SLOT, output, RecvOptions(plugin_options=MESSAGES))


def test_a_lost_connection_is_told_and_made_again(server: EmbeddedPostgres, slot: str, tmp_path: Path) -> None:
    told = list[tuple[type[Wal2LakeError], float]]()
    options = RecvOptions(plugin_options=MESSAGES, reconnect_s=0.2)
    with receiving(server, tmp_path / "out", options, on_wait=lambda e, s: told.append((type(e), s))):
        server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        write(server)
        eventually(lambda: b"read me" in (tmp_path / "out").read_bytes())
    assert told[0] == (ConnectError, 0.2)


def test_a_stop_before_the_end_that_was_asked_for_is_no_success(
    server: EmbeddedPostgres, slot: str, tmp_path: Path
) -> None:
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    with closing(RawOutput(tmp_path / "out")) as output, pytest.raises(InterruptedByUser, match="FFFFFFF/0"):
        recv(server.dsn, slot, output, RecvOptions(LSN.parse("0/0"), LSN.parse("FFFFFFF/0"), MESSAGES), stop)
