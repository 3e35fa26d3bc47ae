"""Both ends of protocol 3: every message round-trips in any pieces; no length or count is believed past its limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.strategies import values
from wal2lake.errors import ProtocolError
from wal2lake.wire.fields import Layout
from wal2lake.wire.framing import BackendReader, FrontendReader, interpret, write_frame
from wal2lake.wire.messages import (
    ANSWERS,
    BACKEND,
    FRONTEND,
    PROTOCOL_3_0,
    AuthenticationResponse,
    AuthenticationSASL,
    BackendMessage,
    CancelRequest,
    CopyData,
    DataRow,
    ErrorField,
    ErrorResponse,
    FrontendMessage,
    NoticeResponse,
    PasswordMessage,
    Query,
    SASLInitialResponse,
    SSLRequest,
    StartupMessage,
    StartupParameter,
    WireMessage,
)

tagged = [cls for cls in FRONTEND if cls.tag]
untagged = [cls for cls in FRONTEND if not cls.tag]
backend: st.SearchStrategy[Any] = st.sampled_from(BACKEND).map(Layout).flatmap(values)
frontend: st.SearchStrategy[Any] = st.sampled_from(tagged).map(Layout).flatmap(values)
opening: st.SearchStrategy[Any] = st.sampled_from(untagged).map(Layout).flatmap(values)


def in_pieces(reader: BackendReader | FrontendReader, data: bytes, size: int) -> list[WireMessage]:
    heard: list[WireMessage] = []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (message := reader.receive()) is not None:
            heard.append(message)
    return heard


@given(st.lists(backend, max_size=4), st.integers(1, 50))
def test_what_a_server_says(messages: list[BackendMessage], size: int) -> None:
    assert in_pieces(BackendReader(), b"".join(map(write_frame, messages)), size) == messages


@given(opening, st.lists(frontend, max_size=4), st.integers(1, 50))
def test_what_a_client_says(first: FrontendMessage, messages: list[FrontendMessage], size: int) -> None:
    said = [first, *messages] if isinstance(first, StartupMessage) else [first]
    assert in_pieces(FrontendReader(), b"".join(map(write_frame, said)), size) == said


@given(st.sampled_from(ANSWERS).map(Layout).flatmap(values))
def test_an_answer_is_what_was_asked_for(answer: Any) -> None:
    reader = FrontendReader()
    reader.started = True
    reader.feed(write_frame(answer))
    response = reader.receive()
    assert isinstance(response, AuthenticationResponse)
    assert interpret(response, type(answer)) == answer


@given(backend)
def test_a_body_cut_short_is_an_error_with_its_offset(message: BackendMessage) -> None:
    frame = write_frame(message)
    for size in range(len(frame) - 5):
        reader = BackendReader()
        reader.feed(frame[:1] + (size + 4).to_bytes(4, "big") + frame[5 : 5 + size])
        try:
            shorter = reader.receive()
        except ProtocolError as error:
            assert error.offset is not None
            assert 0 <= error.offset <= size
        else:
            assert shorter != message  # a message that ends in Byten is whole at any length


def test_every_message_is_in_the_tables() -> None:
    listed = {cls.__name__ for cls in (*FRONTEND, *ANSWERS, *BACKEND)}
    bases = {"FrontendMessage", "BackendMessage"}
    assert {cls.__name__ for base in (FrontendMessage, BackendMessage) for cls in base.__subclasses__()} == listed
    assert {cls.__name__ for cls in WireMessage.__subclasses__()} == bases


def test_the_documented_bytes() -> None:
    startup = StartupMessage(PROTOCOL_3_0, (StartupParameter("user", "u"), StartupParameter("replication", "database")))
    assert write_frame(startup) == b"\0\0\0\x25\0\3\0\0user\0u\0replication\0database\0\0"
    assert write_frame(SSLRequest()) == b"\0\0\0\x08\x04\xd2\x16\x2f"
    assert write_frame(CancelRequest(1, b"\0\0\0\2")) == b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\1\0\0\0\2"
    assert write_frame(DataRow((None, b""))) == b"D\0\0\0\x0e\0\2\xff\xff\xff\xff\0\0\0\0"
    assert write_frame(AuthenticationSASL(("A", "B"))) == b"R\0\0\0\x0d\0\0\0\x0aA\0B\0\0"
    assert write_frame(SASLInitialResponse("A", None)) == b"p\0\0\0\x0aA\0\xff\xff\xff\xff"


def test_an_error_keeps_its_bytes_and_finds_its_fields() -> None:
    latin1 = b"E\0\0\0\x0fSFATAL\0M\xe9\0\0"
    reader = BackendReader()
    reader.feed(latin1)
    error = reader.receive()
    assert isinstance(error, ErrorResponse)
    assert error.field("S") == "FATAL"
    assert error.field("C") is None
    assert write_frame(error) == latin1


@pytest.mark.parametrize(
    ("frame", "offset"),
    [
        (b"D\x7f\xff\xff\xff", 1),  # beyond the limit, refused before its bytes come
        (b"D\0\0\0\3", 1),  # shorter than its own length
        (b"D\0\0\0\6\x7f\xff", 2),  # values without bytes
        (b"R\0\0\0\x08\0\0\0\x63", 0),
        (b"?\0\0\0\4", 0),
        (b"Z\0\0\0\5x", 0),
        (b"1\0\0\0\5x", 0),
        (b"E\0\0\0\5C", 1),
        (b"K\0\0\0\6\0\0", 0),
    ],
)
def test_malformed_frames_name_the_place(frame: bytes, offset: int) -> None:
    reader = BackendReader()
    reader.feed(frame)
    with pytest.raises(ProtocolError) as caught:
        reader.receive()
    assert caught.value.offset == offset


def test_limits_hold_at_start_up_and_afterwards() -> None:
    reader = FrontendReader(limit=10)
    reader.feed((10005).to_bytes(4, "big"))
    with pytest.raises(ProtocolError):
        reader.receive()
    reader = FrontendReader(limit=10)
    reader.started = True
    reader.feed(write_frame(CopyData(bytes(10))))
    assert reader.receive() == CopyData(bytes(10))
    reader.feed(write_frame(CopyData(bytes(11))))
    with pytest.raises(ProtocolError):
        reader.receive()


@pytest.mark.parametrize(
    "message",
    [Query("a\0"), PasswordMessage("\0"), AuthenticationSASL(("",)), NoticeResponse((ErrorField("\0", "x"),))],
)
def test_what_could_not_be_read_is_not_written(message: WireMessage) -> None:
    with pytest.raises(ProtocolError):
        write_frame(message)
