"""One stream under three drivers, against a walsender that is slow, cut, or says what it should not."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from wal2lake.errors import ConnectError, ProtocolError, SlotLostError
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.coalesce import Coalescer
from wal2lake.postgres.connection import (
    connect_replication,
    connect_replication_async,
    execute,
    replication_connection,
    run,
    run_async,
)
from wal2lake.postgres.framed_stream import ReplicationStream
from wal2lake.postgres.logical import LogicalStream
from wal2lake.postgres.read_ahead import Ahead, Piece, ReadAhead
from wal2lake.postgres.replication import start_logical
from wal2lake.postgres.waiting import wait_async
from wal2lake.testing.stream import ScriptedStream, insert, relation
from wal2lake.testing.walsender import FakeWalsender, Session
from wal2lake.wire.replication import StandbyStatusUpdate

pytestmark = pytest.mark.timeout(60)

Statuses = list[StandbyStatusUpdate]
OPTIONS = PgoutputOptions(("p",))


def payloads(rows: int = 3) -> list[bytes]:
    return ScriptedStream().transaction(relation(), *(insert(i, "x") for i in range(rows)))


def blocking(dsn: str) -> list[bytes]:
    with LogicalStream(dsn, "s", plugin_options=OPTIONS) as stream:
        seen = []
        for message in stream:
            seen.append(message.payload)
            stream.acknowledge(LSN(message.start_lsn))
        return seen


def threaded(dsn: str) -> list[bytes]:
    pgconn = connect_replication(dsn)
    opened = run(pgconn, start_logical(pgconn, 'START_REPLICATION SLOT "s" LOGICAL 0/0'))
    return until_the_end(ReadAhead(opened), lambda payload: [payload])


def framed(dsn: str) -> list[bytes]:
    return until_the_end(stream(dsn), lambda piece: piece.payloads)


def framed_by_libpq(dsn: str) -> list[bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wal2lake.postgres.socket_frames.transport_of", lambda pgconn: None)
        return framed(dsn)


def until_the_end(ahead: Ahead[Piece], payloads_of: Callable[[Piece], list[bytes]]) -> list[bytes]:
    seen: list[bytes] = []
    with ahead:
        while True:
            try:
                batch = ahead.receive(5)
            except ConnectError as error:
                if "ended the stream" in str(error):
                    return seen
                raise
            seen += [payload[25:] for piece in batch for payload in payloads_of(piece)]


def in_a_loop(dsn: str) -> list[bytes]:
    async def read() -> list[bytes]:
        pgconn = await connect_replication_async(dsn)
        stream = await run_async(pgconn, start_logical(pgconn, 'START_REPLICATION SLOT "s" LOGICAL 0/0'))
        seen: list[bytes] = []
        while not stream.ended:
            seen += [p[25:] for p in await wait_async(stream.receive(5), pgconn.socket) if len(p) > 18]
        await wait_async(stream.finish(), pgconn.socket)
        stream.frames.close()
        return seen

    return asyncio.run(read())


DRIVERS = pytest.mark.parametrize("read", [blocking, threaded, framed, framed_by_libpq, in_a_loop])


@DRIVERS
def test_what_comes_byte_by_byte_arrives_whole(read: Callable[[str], list[bytes]]) -> None:
    sent = payloads()

    def slowly(session: Session) -> None:
        for payload in sent[:-1]:
            session.raw(payload)
            time.sleep(0.01)  # so that each comes by itself
        session.keepalive(0x9000)
        session.raw(sent[-1])
        session.end_copy()

    with FakeWalsender(slowly) as server:
        assert read(server.dsn) == [payload[25:] for payload in sent]


@DRIVERS
def test_a_cut_is_a_connect_error(read: Callable[[str], list[bytes]]) -> None:
    def cut(session: Session) -> None:
        session.raw(*payloads())
        session.cut()

    with FakeWalsender(cut) as server, pytest.raises(ConnectError, match="was lost"):
        read(server.dsn)


@DRIVERS
def test_an_error_in_the_stream_is_the_servers_own(read: Callable[[str], list[bytes]]) -> None:
    def fail(session: Session) -> None:
        session.raw(*payloads())
        session.fail("55000", 'can no longer access replication slot "s"')

    with FakeWalsender(fail) as server, pytest.raises(SlotLostError):
        read(server.dsn)


@DRIVERS
@pytest.mark.parametrize("wrong", [b"k", b"k" + bytes(8), b"x" + bytes(17), b"k" + bytes(16) + b"\x07"])
def test_a_wrong_keepalive_is_a_protocol_error(read: Callable[[str], list[bytes]], wrong: bytes) -> None:
    def say(session: Session) -> None:
        session.raw(wrong)
        session.await_copy_done()

    with FakeWalsender(say) as server, pytest.raises(ProtocolError):
        read(server.dsn)


def test_a_question_is_answered_while_the_caller_computes() -> None:
    answered: Statuses = []

    def ask(session: Session) -> None:
        session.status()  # said at once on connecting
        for _ in range(3):
            session.raw(*payloads())
            session.keepalive(0x5000, reply_requested=True)
            answered.append(session.status())
        session.await_copy_done()

    with FakeWalsender(ask) as server, stream(server.dsn):
        deadline = time.monotonic() + 5
        while len(answered) < 3 and time.monotonic() < deadline:
            sum(range(100_000))  # never asks the stream for anything
    assert [update.flushed for update in answered] == [LSN(0)] * 3


def stream(dsn: str, buffer_bytes: int = 64 << 20) -> ReplicationStream:
    return ReplicationStream(dsn, "s", LSN(0), "p", {"proto_version": "1"}, buffer_bytes=buffer_bytes)


def test_a_status_goes_out_by_the_clock_although_there_is_no_room() -> None:
    came = threading.Event()

    def flood(session: Session) -> None:
        session.raw(*payloads(200))
        for _ in range(4):
            session.status()
        came.set()
        session.await_copy_done()

    answers = {"wal_sender_timeout": [("300ms",)]}
    with FakeWalsender(flood, answers) as server, stream(server.dsn, buffer_bytes=100):
        assert came.wait(5)


@pytest.mark.parametrize("read", ["blocking", "threaded"])
def test_leaving_tells_what_was_acknowledged_last(read: str) -> None:
    said: Statuses = []

    def listen(session: Session) -> None:
        session.raw(*payloads())
        said.extend(session.await_copy_done())

    with FakeWalsender(listen) as server:
        if read == "threaded":
            with stream(server.dsn) as ahead:
                ahead.receive(5)
                ahead.acknowledge(LSN(0x1010))
        else:
            with pytest.raises(KeyboardInterrupt), LogicalStream(server.dsn, "s", plugin_options=OPTIONS) as behind:
                behind.receive()
                behind.acknowledge(LSN(0x1010))
                raise KeyboardInterrupt
    assert said[-1].flushed == said[-1].applied == 0x1010


def test_a_keepalive_never_overtakes_data() -> None:
    def interleave(session: Session) -> None:
        for end in range(0x2000, 0x2100, 8):
            session.xlog_data(end - 4, b"M")
            session.keepalive(end)
        session.await_copy_done()

    with FakeWalsender(interleave) as server, stream(server.dsn) as ahead:
        last = 0
        while last < 0x20F4:
            batch = ahead.receive(5)
            last = int.from_bytes(batch[-1].last(9)[1:], "big") if batch else last
            assert ahead.keepalive_lsn <= last + 4


def test_a_server_that_never_ends_the_stream_is_not_waited_for_long() -> None:
    gone = threading.Event()

    def ignore(session: Session) -> None:
        gone.wait(10)

    with FakeWalsender(ignore) as server:
        began = time.monotonic()
        with LogicalStream(server.dsn, "s", plugin_options=OPTIONS):
            pass
        assert 1.5 < time.monotonic() - began < 4
        gone.set()


def test_several_at_a_time_in_one_loop() -> None:
    """While one exchange waits, the others go on: each server ends its stream when all four stand."""
    together = threading.Barrier(4)

    def late(session: Session) -> None:
        session.keepalive(1)
        together.wait(30)
        session.end_copy()

    async def all_four(dsn: str) -> None:
        async def one() -> None:
            pgconn = await connect_replication_async(dsn)
            opened = await run_async(pgconn, start_logical(pgconn, "START_REPLICATION SLOT s LOGICAL 0/0"))
            while not opened.ended:
                await wait_async(opened.receive(5), pgconn.socket)
            pgconn.finish()

        await asyncio.gather(*(one() for _ in range(4)))

    with FakeWalsender(late) as server:
        asyncio.run(all_four(server.dsn))


def test_a_command_on_a_connection_that_was_lost_before_is_a_connect_error() -> None:
    def gone(query: str) -> list[tuple[str]]:
        raise ConnectionError

    with (
        FakeWalsender(lambda session: None, {"SHOW gone": gone}) as server,
        replication_connection(server.dsn) as pgconn,
    ):
        for _ in range(2):
            with pytest.raises(ConnectError):
                execute(pgconn, "SHOW gone")


def test_a_connection_that_is_reset_already_is_for_the_next_read_to_tell() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with pytest.raises(ConnectionError):
            client.recv(1)
        Coalescer(client.fileno()).close()
