"""What real servers of PostgreSQL 13 to 18 said: read and written again it is the same, byte for byte."""

from __future__ import annotations

import pytest

from tests.vectors import SERVERS, Capture, Server, captures, load
from tests.vectors.coverage import missing
from wal2lake.errors import ProtocolError
from wal2lake.pgoutput.messages import (
    TRUNCATE_CASCADE,
    TRUNCATE_RESTART_IDENTITY,
    Begin,
    Origin,
    Relation,
    StreamAbort,
    Truncate,
    Type,
)
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.pgoutput.session import PgoutputSession, Received, State
from wal2lake.wire.replication import XLogData, read_from_server

STREAMS = list(captures("stream"))
each_stream = pytest.mark.parametrize(
    ("server", "capture"), STREAMS, ids=[f"{server.major} {capture.name}" for server, capture in STREAMS]
)


def options(capture: Capture) -> PgoutputOptions:
    return PgoutputOptions.parse(capture.options.items())


def hear(capture: Capture) -> list[Received]:
    session = PgoutputSession(options(capture))
    return [session.receive(payload) for payload in capture.pgoutput]


@each_stream
def test_reading_and_writing_is_the_identity(server: Server, capture: Capture) -> None:
    reader, writer = PgoutputSession(options(capture)), PgoutputSession(options(capture))
    for payload in capture.pgoutput:
        received = reader.receive(payload)
        assert writer.send(received.message, received.xid) == payload
    assert reader.state is State.IDLE


@each_stream
def test_a_message_cut_anywhere_is_an_error_with_its_offset(server: Server, capture: Capture) -> None:
    session = PgoutputSession(options(capture))
    for payload in capture.pgoutput:
        for size in range(len(payload)):
            with pytest.raises(ProtocolError) as caught:
                session.receive(payload[:size])
            assert caught.value.offset is not None
            assert 0 <= caught.value.offset <= size
        session.receive(payload)


@each_stream
def test_options_are_what_the_server_was_sent(server: Server, capture: Capture) -> None:
    assert dict(options(capture).build(server.version)) == capture.options


@each_stream
def test_only_what_something_else_follows_comes_without_a_position(server: Server, capture: Capture) -> None:
    """A walsender sends XLogData at 0/0 for all but the last write of a callback: nobody may take it for a position."""
    data = [message for message in map(read_from_server, capture.payloads) if isinstance(message, XLogData)]
    heard = [type(received.message) for received in hear(capture)]
    without = {kind for kind, message in zip(heard, data, strict=True) if not message.start_lsn}
    assert {Relation} <= without <= ({Relation, Type, Begin} if Origin in heard else {Relation, Type})
    assert all(message.start_lsn == message.end_lsn for message in data)


@pytest.mark.parametrize("major", [major for major in SERVERS if major >= 14])
def test_subtransactions_are_told_apart(major: int) -> None:
    capture = next(capture for server, capture in STREAMS if server.major == major and capture.name == "streamed")
    heard = hear(capture)
    aborts = [received.message for received in heard if isinstance(received.message, StreamAbort)]
    assert [abort.xid == abort.subxid for abort in aborts] == [False, True]
    assert {abort.subxid for abort in aborts} <= {received.xid for received in heard}


@pytest.mark.parametrize("major", SERVERS)
def test_how_a_table_was_truncated_is_told(major: int) -> None:
    capture = next(capture for server, capture in STREAMS if server.major == major and capture.name == "changes")
    said = [statement for statement in capture.sql if statement.startswith("TRUNCATE")]
    flags = [
        TRUNCATE_CASCADE * ("CASCADE" in statement) | TRUNCATE_RESTART_IDENTITY * ("RESTART IDENTITY" in statement)
        for statement in said
    ]
    truncates = [received.message for received in hear(capture) if isinstance(received.message, Truncate)]
    assert [truncate.options for truncate in truncates] == flags
    assert set(flags) == {0, TRUNCATE_CASCADE, TRUNCATE_RESTART_IDENTITY, 3}


def test_every_documented_message_has_a_vector_of_every_server_that_says_it() -> None:
    assert missing(map(load, SERVERS)) == []
