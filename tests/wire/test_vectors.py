"""Frames, replication messages and COPY rows of real servers and clients: read and written again they are the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vectors import Capture, Server, captures
from tests.vectors.coverage import read_frame
from wal2lake.errors import ProtocolError
from wal2lake.wire.copy import CopyMachine, CopyState, Side
from wal2lake.wire.copyformat import BinaryRowReader, Row, RowReader, binary_header, binary_trailer, write_binary_row
from wal2lake.wire.copytext import CsvFormat, LineReader, TextFormat
from wal2lake.wire.framing import write_frame
from wal2lake.wire.messages import (
    CopyData,
    CopyOutResponse,
    ErrorResponse,
)
from wal2lake.wire.replication import (
    HotStandbyFeedback,
    PrimaryKeepalive,
    StandbyStatusUpdate,
    XLogData,
    read_from_client,
    read_from_server,
    write_hot_standby_feedback,
    write_primary_keepalive,
    write_standby_status_update,
    write_xlog_data,
)

FRAMES = list(captures("frames"))
STREAMS = list(captures("stream"))
WRITERS: dict[type, Any] = {
    XLogData: write_xlog_data,
    PrimaryKeepalive: write_primary_keepalive,
    StandbyStatusUpdate: write_standby_status_update,
    HotStandbyFeedback: write_hot_standby_feedback,
}
SYNTAX_ERROR, FEATURE_NOT_SUPPORTED = "42601", "0A000"
ONE_CONNECTION = ("commands", "physical", "logical", "upload manifest", "copy", "simple", "extended", "negotiation")
ROWS: list[Row] = [(b"1", b"a"), (b"2", None), (b"3", b""), (b"4", b"\t\n\\\"',"), (b"5", "ü".encode())]


def name(capture: tuple[Server, Capture]) -> str:
    return f"{capture[0].major} {capture[1].name}"


each_conversation = pytest.mark.parametrize(("server", "capture"), FRAMES, ids=map(name, FRAMES))
each_copy = pytest.mark.parametrize("capture", [c for _, c in FRAMES if c.name == "copy"], ids=lambda c: c.name)


@each_conversation
def test_reading_and_writing_a_frame_is_the_identity(server: Server, capture: Capture) -> None:
    for side, frame in capture.frames:
        assert write_frame(read_frame(side, frame)) == frame


@each_conversation
def test_a_frame_cut_anywhere_waits_for_more_and_a_body_cut_is_an_error(server: Server, capture: Capture) -> None:
    for side, frame in capture.frames:
        whole = read_frame(side, frame)
        head = 5 if frame[:1] != b"\0" else 4
        for size in range(head - 4, len(frame)):
            assert read_frame(side, frame[:size]) is None
        for size in range(len(frame) - head):
            cut = frame[: head - 4] + (size + 4).to_bytes(4, "big") + frame[head : head + size]
            try:
                assert read_frame(side, cut) != whole
            except ProtocolError as error:
                assert error.offset is not None
                assert 0 <= error.offset <= size


@pytest.mark.parametrize(("server", "capture"), STREAMS, ids=map(name, STREAMS))
def test_reading_and_writing_a_stream_is_the_identity(server: Server, capture: Capture) -> None:
    for payload in capture.payloads:
        message = read_from_server(payload)
        assert WRITERS[type(message)](message) == payload
        for size in range(min(len(payload), 25)):
            with pytest.raises(ProtocolError) as caught:
                read_from_server(payload[:size])
            assert caught.value.offset is not None


@pytest.mark.parametrize("capture", [c for _, c in FRAMES if c.name == "standby"], ids=lambda c: c.name)
def test_reading_and_writing_what_a_standby_says_is_the_identity(capture: Capture) -> None:
    heard = [frame[5:] for side, frame in capture.frames if side == "F" and frame[:1] == b"d"]
    messages = [read_from_client(payload) for payload in heard]
    assert [WRITERS[type(message)](message) for message in messages] == heard
    assert {StandbyStatusUpdate, HotStandbyFeedback} == set(map(type, messages))


@each_copy
def test_rows_of_every_format(capture: Capture) -> None:
    said = [read_frame(side, frame) for side, frame in capture.frames]
    text, csv, binary = (b"".join(copied) for copied in copies_out(said)[:3])
    lines = LineReader(TextFormat())
    assert rows_of(lines, text) == ROWS
    assert b"".join(map(TextFormat().write, ROWS)) == text
    with_header = LineReader(CsvFormat(header=True))
    assert rows_of(with_header, csv) == ROWS
    assert with_header.names is not None
    assert b"".join(map(CsvFormat().write, [with_header.names, *ROWS])) == csv
    rows = rows_of(BinaryRowReader(), binary)
    assert [row[1] for row in rows] == [row[1] for row in ROWS]
    assert binary_header() + b"".join(map(write_binary_row, rows)) + binary_trailer() == binary


@pytest.mark.parametrize("capture", [c for _, c in FRAMES if c.name in ONE_CONNECTION], ids=lambda c: c.name)
def test_the_copy_machine_follows_what_real_ends_do(capture: Capture) -> None:
    machine = CopyMachine()
    for side, frame in capture.frames:
        machine.step(Side.FRONTEND if side == "F" else Side.BACKEND, read_frame(side, frame))
    assert machine.state is CopyState.CLOSED


@pytest.mark.parametrize("capture", [c for _, c in FRAMES if c.name == "commands"], ids=lambda c: c.name)
def test_no_server_finds_a_command_ill_formed(capture: Capture) -> None:
    said = [read_frame(side, frame) for side, frame in capture.frames]
    states = {message.field("C") for message in said if isinstance(message, ErrorResponse)}
    assert states.isdisjoint({SYNTAX_ERROR, FEATURE_NOT_SUPPORTED})


def rows_of(reader: RowReader, data: bytes) -> list[Row]:
    rows = reader.feed(data)
    reader.close()
    return rows


def copies_out(said: list[Any]) -> list[list[bytes]]:
    """The CopyData of each COPY TO STDOUT, in order."""
    copies: list[list[bytes]] = []
    for message in said:
        if isinstance(message, CopyOutResponse):
            copies.append([])
        elif isinstance(message, CopyData) and copies:
            copies[-1].append(message.data)
    return copies
