"""A stream read past libpq, plain and through libpq's TLS, from a walsender that says what it should and should not."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.postgres.conftest import TlsFront, Way
from tests.postgres.test_read_ahead import framed, payloads, stream
from wal2lake.errors import ConnectError, ServerError, SlotInUseError, SlotLostError
from wal2lake.lsn import LSN
from wal2lake.postgres.connection import execute, replication_connection
from wal2lake.postgres.framed_stream import ReplicationStream
from wal2lake.postgres.tls import Tls
from wal2lake.postgres.transport import Plain, Transport, transport_of
from wal2lake.testing.walsender import FakeWalsender, Session
from wal2lake.wire.framing import write_frame
from wal2lake.wire.messages import CopyData, CopyDone
from wal2lake.wire.replication import XLogData, write_xlog_data

pytestmark = pytest.mark.timeout(60)


def collect(ahead: ReplicationStream, count: int) -> list[bytes]:
    seen: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(seen) < count and time.monotonic() < deadline:
        seen += [payload for piece in ahead.receive(5) for payload in piece.payloads]
    return seen


@pytest.mark.parametrize(("tls", "kind"), [(False, Plain), (True, Tls)])
def test_which_way_is_taken(request: pytest.FixtureRequest, *, tls: bool, kind: type[Transport]) -> None:
    with FakeWalsender(lambda session: None) as server, contextlib.ExitStack() as stack:
        front = TlsFront(server.dsn, request.getfixturevalue("certificate")) if tls else None
        dsn = stack.enter_context(front) if front else server.dsn
        with replication_connection(dsn) as pgconn:
            transport = transport_of(pgconn)
            assert isinstance(transport, kind)
            transport.close()
            assert execute(pgconn, "IDENTIFY_SYSTEM")  # libpq goes on as if nothing had been
            pgconn.send_query(b"SELECT 1")
            assert transport_of(pgconn) is None  # an answer is awaited


def test_what_encrypts_unknown_to_us_stays_with_libpq(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> None:
    with FakeWalsender(lambda session: None) as server:
        with replication_connection(server.dsn) as pgconn:
            monkeypatch.setattr("wal2lake.postgres.transport.loaded_libpq", lambda: None)
            assert transport_of(pgconn) is None
            monkeypatch.undo()
        with TlsFront(server.dsn, certificate) as dsn, replication_connection(dsn) as pgconn:
            monkeypatch.setattr("wal2lake.postgres.transport.tls_of", lambda libpq, pgconn: None)
            assert transport_of(pgconn) is None
            monkeypatch.undo()


def test_the_whole_stream_arrives_in_order(way: Way) -> None:
    sent = payloads(5_000)

    def say(session: Session) -> None:
        for first in range(0, len(sent), 7):
            session.raw(*sent[first : first + 7])
        session.keepalive(0x9000)
        session.end_copy()

    with FakeWalsender(say) as server, way(server) as dsn:
        assert framed(dsn) == [payload[25:] for payload in sent]


def test_small_and_huge_messages_by_turns(way: Way) -> None:
    sent = [write_xlog_data(XLogData(LSN(n), LSN(n), 0, b"M" * (1 if n % 2 else n << 20))) for n in (1, 2, 3, 4)]

    def say(session: Session) -> None:
        for payload in sent:
            session.raw(payload)
        session.await_copy_done()

    with FakeWalsender(say) as server, way(server) as dsn, stream(dsn) as ahead:
        assert collect(ahead, len(sent)) == sent
        assert ahead.messages == len(sent)


def test_an_announced_length_takes_no_memory_before_it_comes(way: Way) -> None:
    told = threading.Event()

    def announce(session: Session) -> None:
        session.raw(payloads(1)[0])
        session.octets(b"d" + (1 << 29).to_bytes(4, "big") + b"w" * (1 << 16))
        told.wait(10)
        session.cut()

    with FakeWalsender(announce) as server, way(server) as dsn, stream(dsn) as ahead:
        tracemalloc.start()
        try:
            assert len(collect(ahead, 1)) == 1
            told.set()
            with pytest.raises(ConnectError, match="was lost"):
                for _ in range(20):
                    ahead.receive(1)
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "wrong",
    [b"d\xff\xff\xff\xff", b"d\0\0\0\3", b"d\x7f\xff\xff\xff", b"Z\x10\0\0\0", b"\0\0\0\0\5x", b"\x17\x03\x03\x7f\xff"],
)
def test_what_is_no_frame_ends_the_stream_behind_what_came(way: Way, wrong: bytes) -> None:
    sent = payloads(2)

    def say(session: Session) -> None:
        session.raw(*sent)
        session.octets(wrong)
        with contextlib.suppress(ConnectionError):
            session.await_copy_done()

    with FakeWalsender(say) as server, way(server) as dsn, stream(dsn) as ahead:
        assert collect(ahead, len(sent)) == sent
        with pytest.raises(ConnectError, match="lost synchronization"):
            ahead.receive(5)


def test_an_error_amid_the_copy_follows_what_came_before(way: Way) -> None:
    sent = payloads(3)

    def fail(session: Session) -> None:
        session.raw(*sent)
        session.fail("55000", 'can no longer access replication slot "s"', severity="FATAL")

    with FakeWalsender(fail) as server, way(server) as dsn, stream(dsn) as ahead:
        assert collect(ahead, len(sent)) == sent
        with pytest.raises(SlotLostError):
            ahead.receive(5)


class Refusing(FakeWalsender):
    """Refuses to stream."""

    def _answer(self, session: Session, query: str) -> None:
        if query.startswith("START_REPLICATION"):
            session.notice("01000", "this will not do")
            session.fail("55006", 'replication slot "s" is active for PID 1')
        else:
            super()._answer(session, query)


def test_the_start_is_refused(way: Way) -> None:
    with Refusing(lambda session: None) as server, way(server) as dsn, pytest.raises(SlotInUseError):
        stream(dsn)


def test_a_warning_that_is_a_refusal_ends_the_stream(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    sent = payloads(2)

    def warn(session: Session) -> None:
        session.raw(*sent)
        session.notice("01000", "take care")
        session.raw(sent[0])
        session.notice("42704", 'publication "p" does not exist')
        session.raw(*sent)
        session.await_copy_done()

    with caplog.at_level(logging.WARNING), FakeWalsender(warn) as server, way(server) as dsn, stream(dsn) as ahead:
        assert collect(ahead, len(sent) + 1) == [*sent, sent[0]]
        with pytest.raises(ServerError, match="publication"):
            ahead.receive(5)
    assert "take care" in caplog.text


def test_a_cut_session_is_a_connect_error(way: Way) -> None:
    def cut(session: Session) -> None:
        session.raw(*payloads(2))
        session.cut()

    lost = pytest.raises(ConnectError, match="was lost")
    with FakeWalsender(cut) as server, way(server) as dsn, lost, stream(dsn) as ahead:
        for _ in range(4):
            ahead.receive(5)


def test_the_server_hears_while_data_flows_and_at_the_end(way: Way) -> None:
    said: list[int] = []
    flooded = threading.Event()

    def flood(session: Session) -> None:
        session.status()
        sent = payloads(200)
        while LSN(0x7777) not in said:
            session.raw(*sent)
            session.keepalive(0x8000, reply_requested=True)
            said.append(session.status().flushed)
        flooded.set()
        said.extend(update.flushed for update in session.await_copy_done())

    with FakeWalsender(flood) as server, way(server) as dsn, stream(dsn) as ahead:
        ahead.receive(5)
        ahead.acknowledge(LSN(0x7777))
        assert flooded.wait(20)
        ahead.acknowledge(LSN(0x8888))
    assert said[-1] == 0x8888


def test_what_the_server_still_sends_behind_its_end_is_discarded(way: Way) -> None:
    """A walsender amid a transaction answers CopyDone between two messages of it, and goes on with the others."""
    sent = payloads(200)

    def go_on(session: Session) -> None:
        session.raw(*sent)
        while isinstance(session.receive(), CopyData):
            pass
        session.send(CopyDone())
        for _ in range(50):
            session.octets(b"".join(write_frame(CopyData(payload)) for payload in sent))
            time.sleep(0.01)
        session.answer(command="COPY 0")
        answered.set()

    answered = threading.Event()
    with FakeWalsender(go_on) as server, way(server) as dsn:
        with stream(dsn) as ahead:
            ahead.receive(5)
        assert answered.wait(5)
