"""What a real server does too seldom: streams that are cut, come back otherwise, or go on elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client.reading import BOTH, Read, blocking, rows
from tests.waiting import eventually
from wal2lake import LSN, Commit, connect, connect_physical
from wal2lake.errors import LogMismatchError, ProtocolError
from wal2lake.testing.stream import ScriptedStream, insert, relation
from wal2lake.testing.walsender import FakeWalsender, Session

pytestmark = pytest.mark.timeout(30)


def transaction(rows: int) -> list[bytes]:
    return ScriptedStream().transaction(relation(), *(insert(i, "x") for i in range(rows)))


def fake(*streams: Callable[[Session], None]) -> FakeWalsender:
    left = iter(streams)

    def stream(session: Session) -> None:
        next(left)(session)

    return FakeWalsender(stream)


def let_arrive(session: Session) -> None:
    """Return when the client has read all that it was sent."""
    session.status()  # said at once on connecting
    session.keepalive(0, reply_requested=True)
    session.status()


@BOTH
@pytest.mark.parametrize("came", [1, 2, 3, 5])
def test_a_transaction_that_was_cut_goes_on_where_it_was(read: Read, came: int) -> None:
    sent = transaction(4)

    def cut(session: Session) -> None:
        session.raw(*sent[:came])
        let_arrive(session)
        session.cut()

    def whole(session: Session) -> None:
        session.raw(*sent)
        session.await_copy_done()

    with fake(cut, whole) as server:
        events = read(connect(server.dsn, slot="s", publication="p", on_wait=lambda *_: None))
    assert [type(event).__name__ for event in events] == ["Begin", *["Insert"] * 4, "Commit"]
    assert [row["id"] for _, _, row in rows(events)] == [0, 1, 2, 3]


def test_a_keepalive_counts_also_when_it_came_before_the_acknowledgement() -> None:
    sent, told = transaction(1), list[LSN]()

    def idle(session: Session) -> None:
        session.raw(*sent)
        session.keepalive(0x9000000)
        told.extend(update.flushed for update in session.await_copy_done())

    with fake(idle) as server, connect(server.dsn, slot="s", publication="p") as stream:
        commit = next(event for event in stream if isinstance(event, Commit))
        eventually(lambda: stream.receive(0.1) or stream.delivered_lsn == 0x9000000)
        assert stream.acknowledged_lsn == 0
        stream.acknowledge(commit.end_lsn)
        eventually(lambda: stream.receive(0.1) or stream.acknowledged_lsn == 0x9000000, timeout_s=10)
    assert told[-1] == 0x9000000


def test_a_transaction_that_comes_back_otherwise_is_an_error() -> None:
    sent, other = transaction(4), ScriptedStream(0x8000).transaction(relation(), insert(1, "x"))

    def cut(session: Session) -> None:
        session.raw(*sent[:4])
        let_arrive(session)
        session.cut()

    def different(session: Session) -> None:
        session.raw(*other)
        session.await_copy_done()

    with fake(cut, different) as server, pytest.raises(ProtocolError, match="did not come again"):
        blocking(connect(server.dsn, slot="s", publication="p", on_wait=lambda *_: None))


def test_a_server_that_was_taken_back_is_refused() -> None:
    sent = ScriptedStream(0x9000000).transaction(relation(), insert(1, "x"))

    def end(session: Session) -> None:
        session.raw(*sent)
        let_arrive(session)
        session.cut()

    with fake(end) as server, pytest.raises(LogMismatchError, match="taken back"):
        blocking(connect(server.dsn, slot="s", publication="p", on_wait=lambda *_: None), commits=2)


def test_physical_streams_iterate_across_a_promotion() -> None:
    def first(session: Session) -> None:
        session.xlog_data(0x1000000, b"a" * 100)
        session.xlog_data(0x1000064, b"b" * 50)
        session.end_copy([("2", "0/1000096")])

    def second(session: Session) -> None:
        session.xlog_data(0x1000096, b"c")
        assert session.await_copy_done()[-1].flushed == 0x1000064

    with fake(first, second) as server, connect_physical(server.dsn, start_lsn=0x1000000) as stream:
        wal = b""
        for piece in stream:
            wal += piece.payload
            if len(wal) == 100:
                stream.acknowledge(piece.start_lsn + len(piece.payload))
            if len(wal) == 151:
                break
        assert stream.delivered_lsn == 0x1000097
    assert wal == b"a" * 100 + b"b" * 50 + b"c"
    starts = [query for query in server.queries if query.startswith("START")]
    assert starts == [
        "START_REPLICATION PHYSICAL 0/1000000 TIMELINE 1",
        "START_REPLICATION PHYSICAL 0/1000096 TIMELINE 2",
    ]
