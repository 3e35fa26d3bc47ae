"""Rows of a COPY past libpq, plain and through TLS, held to what libpq reads: however they come, wherever it ends."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.postgres.conftest import Way
from tests.waiting import eventually
from wal2lake.columnar.copy_rows import iter_copy_rows
from wal2lake.columnar.framing import Framed
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import ConnectError, ProtocolError, ServerError, Wal2LakeError
from wal2lake.postgres import copy_frames
from wal2lake.postgres.connection import Connection, connect, execute, mapped_errors, replication_connection
from wal2lake.postgres.copy_frames import copied_rows
from wal2lake.testing.embedded import EmbeddedPostgres
from wal2lake.testing.walsender import FakeWalsender, Session
from wal2lake.wire.copyformat import binary_header, binary_trailer, write_binary_row
from wal2lake.wire.framing import write_frame
from wal2lake.wire.messages import (
    BackendMessage,
    CommandComplete,
    CopyData,
    CopyDone,
    CopyOutResponse,
    ReadyForQuery,
)

pytestmark = pytest.mark.timeout(60)

COPY = "COPY t TO STDOUT (FORMAT binary)"
BINARY_2 = CopyOutResponse(1, (1, 1))
SCHEMA = TableSchema.build(7, "s", "t", [("a", 23, -1, None, True), ("b", 17, -1, None, False)])
values = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"d\0\0\0\x06\0\2", b"Z\0\0\0\5", b"\xff\xff"]))


@pytest.fixture(params=["past libpq", "by libpq"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways have the same outcome."""
    if request.param == "by libpq":
        monkeypatch.setattr(copy_frames, "transport_of", lambda pgconn: None)


class Pieces:
    """A Transport that has received so many bytes at a time, and now and then none."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self._data, self._sizes = data, [*sizes, len(data)]

    def read_into(self, room: memoryview) -> int:
        size = self._sizes.pop(0) if self._sizes else 0
        piece, self._data = self._data[: min(size, len(room))], self._data[min(size, len(room)) :]
        room[: len(piece)] = piece
        return len(piece)

    def write(self, data: memoryview) -> int:
        return len(data)

    def close(self) -> None:
        pass


def said(payloads: Sequence[bytes]) -> bytes:
    """What a server says that copies these messages."""
    messages: list[BackendMessage] = [BINARY_2, *map(CopyData, payloads), CopyDone(), CommandComplete("COPY 1")]
    return b"".join(map(write_frame, [*messages, ReadyForQuery("T")]))


def read_in_pieces(data: bytes, sizes: Sequence[int], columns: int = 2) -> list[bytes]:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        theirs.send(b"always readable")
        patch.setattr(copy_frames, "transport_of", lambda pgconn: Pieces(data, sizes))
        pgconn: Any = SimpleNamespace(socket=ours.fileno(), notice_handler=None)
        return [row for rows in copied_rows(pgconn, COPY, columns) for row in rows.payloads]


@given(st.lists(st.tuples(values, values)), st.lists(st.integers(0, 90), max_size=30))
@example([], [])
@example([], [25, 0, 1])
@example([(None, b"Z\0\0\0\5")] * 3, [30, 30, 7])
def test_rows_come_as_they_were_sent(sent: list[tuple[bytes | None, bytes | None]], sizes: list[int]) -> None:
    rows = list(map(write_binary_row, sent))
    head, *rest = [*rows, binary_trailer()]
    assert read_in_pieces(said([binary_header() + head, *rest]), sizes) == rows


@given(
    st.lists(st.tuples(st.none() | st.binary(min_size=4, max_size=4), values), min_size=1, max_size=6),
    st.lists(st.integers(0, 200), max_size=3),
)
def test_messages_that_are_no_rows_are_never_taken_for_some(
    sent: list[tuple[bytes | None, bytes | None]], cuts: list[int]
) -> None:
    """PostgreSQL never cuts the stream of a COPY elsewhere. Who does is refused, or did not."""
    rows = list(map(write_binary_row, sent))
    whole = b"".join(rows)
    edges = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    head, *rest = [whole[a:b] for a, b in itertools.pairwise(edges)]
    as_sent = edges == [sum(map(len, rows[:n])) for n in range(len(rows) + 1)]
    try:
        found = read_in_pieces(said([binary_header() + head, *rest, binary_trailer()]), [])
        arrays = list(iter_copy_rows(Framed.of(found), SCHEMA.columns, "s.t"))
    except ProtocolError:
        assert not as_sent
        return
    assert as_sent
    decoded = [(a, b) for one in arrays for a, b in zip(*(array.to_pylist() for array in one), strict=True)]
    assert decoded == [(None if a is None else int.from_bytes(a, signed=True), b) for a, b in sent]


def copying(*payloads: bytes, then: Callable[[Session], None] | None = None) -> FakeWalsender:
    """A server whose every COPY sends these, and ends as it should, or as ``then`` does."""

    def copy(session: Session) -> None:
        session.send(BINARY_2)
        session.raw(*payloads)
        if then is None:
            session.send(CopyDone())
            session.answer(command="COPY 1")
        else:
            then(session)

    return FakeWalsender(lambda session: None, commands={"COPY": copy})


def read_all(dsn: str, seen: list[bytes] | None = None) -> list[bytes]:
    seen = [] if seen is None else seen
    with replication_connection(dsn) as pgconn:
        for rows in copied_rows(pgconn, COPY, 2):
            seen += rows.payloads
        assert execute(pgconn, "IDENTIFY_SYSTEM")  # libpq goes on as if nothing had been
    return seen


@pytest.mark.usefixtures("reader")
def test_small_and_huge_rows_by_turns(way: Way) -> None:
    rows = [write_binary_row([b"key!", bytes(size)]) for size in (1, 3 << 20, 2, 5 << 20, 1 << 20, 3) for _ in range(2)]
    with copying(binary_header() + rows[0], *rows[1:], binary_trailer()) as server, way(server) as dsn:
        assert read_all(dsn) == rows


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    "payloads", [[binary_header() + binary_trailer()], [], [binary_header(), binary_trailer()]], ids=len
)
def test_no_rows(way: Way, payloads: list[bytes]) -> None:
    with copying(*payloads) as server, way(server) as dsn:
        assert read_all(dsn) == []


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("first", [b"PGCOPY\n", b"xGCOPY" + binary_header()[6:], binary_header()[:-1] + b"\x01"])
def test_what_begins_otherwise_is_no_copy(way: Way, first: bytes) -> None:
    refused = pytest.raises(ProtocolError, match="does not begin with a file header")
    with copying(first, binary_trailer()) as server, way(server) as dsn, refused:
        read_all(dsn)


@pytest.mark.usefixtures("reader")
def test_an_error_amid_the_copy_follows_what_came_before(way: Way) -> None:
    fail_behind_rows(way, lambda session: session.fail("XX001", "invalid page in block 7"))


def test_the_last_word_of_a_server_that_hangs_up_is_heard(way: Way) -> None:
    def hang_up(session: Session) -> None:
        session.fail("XX001", "invalid page in block 7", "FATAL")
        raise ConnectionError

    fail_behind_rows(way, hang_up)


def fail_behind_rows(way: Way, fail: Callable[[Session], None]) -> None:
    rows = [write_binary_row([b"key!", b"value"])] * 3
    seen: list[bytes] = []
    said_so = pytest.raises(ServerError, match=r"invalid page in block 7 \(SQLSTATE XX001\)")
    with copying(binary_header() + rows[0], *rows[1:], then=fail) as server, way(server) as dsn, said_so:
        read_all(dsn, seen)
    assert seen == rows


@pytest.mark.usefixtures("reader")
def test_a_refused_command(way: Way) -> None:
    refusing = FakeWalsender(lambda _: None, commands={"COPY": lambda session: session.fail("42P01", "no such table")})
    with refusing as server, way(server) as dsn, pytest.raises(ServerError, match="no such table"):
        read_all(dsn)


@pytest.mark.usefixtures("reader")
def test_a_cut_connection(way: Way) -> None:
    row = write_binary_row([b"key!", b"value"])
    lost = pytest.raises(ConnectError, match="was lost")
    with copying(binary_header() + row, row[:9], then=Session.cut) as server, way(server) as dsn, lost:
        read_all(dsn)


def test_warnings_are_heard_and_end_nothing(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    row = write_binary_row([b"key!", b"value"])

    def go_on(session: Session) -> None:
        session.notice("42704", "this is no stream of changes")
        session.raw(row, binary_trailer())
        session.send(CopyDone())
        session.answer(command="COPY 2")

    with caplog.at_level(logging.WARNING), copying(binary_header() + row, then=go_on) as server, way(server) as dsn:
        assert read_all(dsn) == [row, row]
    assert "no stream of changes" in caplog.text


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """It is a KeyboardInterrupt, also where the tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("reader", "ctrl_c")
def test_ctrl_c_amid_a_copy(way: Way) -> None:
    gone = threading.Event()

    def stall(session: Session) -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with contextlib.suppress(ConnectionError):
            session.receive()
        gone.set()
        raise ConnectionError

    row = write_binary_row([b"key!", b"value"])
    with copying(binary_header() + row, then=stall) as server, way(server) as dsn:
        with pytest.raises(KeyboardInterrupt):
            read_all(dsn)
        assert gone.wait(10)


# -- with a server


@pytest.fixture
def session(server: EmbeddedPostgres) -> Iterator[Connection]:
    with contextlib.closing(connect(server.tcp_dsn)) as connection:
        connection.execute("BEGIN READ ONLY")
        yield connection


def rows_of(connection: Connection, query: str, columns: int = 1) -> Iterator[Any]:
    with mapped_errors():
        return copied_rows(connection.pgconn, f"COPY ({query}) TO STDOUT (FORMAT binary)", columns)


@pytest.mark.server
@pytest.mark.usefixtures("reader")
def test_a_transaction_goes_on_behind_a_copy(session: Connection) -> None:
    xact = "SELECT pg_export_snapshot(), backend_xmin FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    for count in (0, 1, 100_000):
        query = f"SELECT n, repeat('x', n % 90) FROM generate_series(1, {count}) n"
        assert sum(map(len, rows_of(session, query, 2))) == count
        assert session.execute(xact.encode()).fetchone()
        assert session.info.transaction_status.name == "INTRANS"


@pytest.mark.server
def test_a_value_of_100_megabytes(session: Connection) -> None:
    (rows,) = rows_of(session, "SELECT convert_to(repeat('x', 100 << 20), 'UTF8')")
    assert int(rows.ends[0] - rows.begins[0]) == 2 + 4 + (100 << 20)


@pytest.mark.server
@pytest.mark.parametrize("query", ["SELECT 1 / (50000 - n) FROM generate_series(1, 60000) n", "SELECT 1 FROM absent"])
def test_the_server_says_the_same_either_way(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    def told() -> tuple[type[Wal2LakeError], str, str | None, int]:
        count = 0
        with contextlib.closing(connect(server.tcp_dsn)) as connection, pytest.raises(Wal2LakeError) as raised:
            for rows in rows_of(connection, query):
                count += len(rows)
        return raised.type, str(raised.value), raised.value.hint, count

    past_libpq = told()
    monkeypatch.setattr(copy_frames, "transport_of", lambda pgconn: None)
    assert past_libpq == told()
    assert past_libpq[-1] == (49_999 if "60000" in query else 0)


@pytest.mark.server
@pytest.mark.usefixtures("reader", "ctrl_c")
def test_ctrl_c_before_a_copy_leaves_nobody_waiting(server: EmbeddedPostgres, session: Connection) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    server.psql("CREATE TABLE awaited (a int)")

    def interrupt() -> None:
        eventually(lambda: server.psql(waiting) == "1")
        os.kill(os.getpid(), signal.SIGINT)

    with contextlib.closing(connect(server.dsn, writable=True)) as locker:
        locker.execute("BEGIN")
        locker.execute("LOCK TABLE public.awaited")
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            list(rows_of(session, "SELECT * FROM public.awaited"))
        interrupter.join()
        eventually(lambda: server.psql(waiting) == "0")
    server.psql("DROP TABLE awaited")
