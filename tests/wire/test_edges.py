"""Where a name, a number, a message or a format is just still one, and where it is none any more; each reason alone."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.lsn import LSN
from wal2lake.wire import replication
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.command_parser import parse_command
from wal2lake.wire.command_text import uint32
from wal2lake.wire.commands import Command, DropReplicationSlot, StartPhysicalReplication, TimelineHistory
from wal2lake.wire.copyformat import BinaryRowReader, RowReader, binary_header, binary_trailer
from wal2lake.wire.copytext import CsvFormat, LineFormat, LineReader, TextFormat
from wal2lake.wire.fields import (
    Array,
    Byten,
    Choice,
    Flag,
    Int8,
    Int16,
    Layout,
    LooseString,
    NullableBytes,
    Octets4,
    Reader,
    String,
    Terminated,
    wire_type,
)
from wal2lake.wire.framing import BackendReader, FrontendReader, read_as, write_frame
from wal2lake.wire.messages import (
    ASCII,
    PROTOCOL_3_0,
    ErrorField,
    NegotiateProtocolVersion,
    PasswordMessage,
    StartupMessage,
    StartupParameter,
)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (DropReplicationSlot("x" * 63), f'DROP_REPLICATION_SLOT "{"x" * 63}"'),
        (DropReplicationSlot("é" * 31 + "x"), f'DROP_REPLICATION_SLOT "{"é" * 31}x"'),
        (TimelineHistory(1), "TIMELINE_HISTORY 1"),
        (TimelineHistory(0xFFFFFFFF), "TIMELINE_HISTORY 4294967295"),
        (StartPhysicalReplication(LSN(2**64 - 1)), "START_REPLICATION PHYSICAL FFFFFFFF/FFFFFFFF"),
    ],
)
def test_the_longest_and_the_least(command: Command, text: str) -> None:
    assert command.build() == text
    assert parse_command(text) == command


@pytest.mark.parametrize("timeline", [-1, 0, 1 << 32])
def test_what_is_no_timeline(timeline: int) -> None:
    with pytest.raises(ConfigError, match=f"between 1 and 4294967295; {timeline} does not"):
        TimelineHistory(timeline).build()
    with pytest.raises(ProtocolError):
        parse_command(f"TIMELINE_HISTORY {timeline}")


ZEROS = "0" * 5000  # more digits than Python makes a number of


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("0", 0), ("7", 7), ("4294967295", 2**32 - 1), ("4294967296", None), ("9999999999", None),
        ("10000000000", None), (ZEROS, 0), (ZEROS + "4294967295", 2**32 - 1), (ZEROS + "4294967296", None),
        ("9" * 5000, None), ("", None), ("abc", None), ("-1", None), ("٣", None), ("²", None),
    ],
)  # fmt: skip
def test_a_number_of_32_bits(digits: str, number: int | None) -> None:
    assert uint32(digits) == number


def test_a_number_may_begin_with_zeros() -> None:
    assert parse_command(f"TIMELINE_HISTORY {ZEROS}7") == TimelineHistory(7)
    assert parse_command(f"BASE_BACKUP MAX_RATE {ZEROS}32") == BaseBackup(max_rate=32)
    assert parse_command(f"BASE_BACKUP (MAX_RATE '{ZEROS}32')") == BaseBackup(max_rate=32)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Flag, True), (Int8, 1), (String, ""), (LooseString, ""), (Byten, b""), (Octets4, b"1234"),
        (Annotated[Any, Choice("ab")], "b"), (Annotated[Any, NullableBytes()], None),
        (Annotated[Any, Array(wire_type(Int16), wire_type(String))], ()),
        (Annotated[Any, Terminated(wire_type(String))], ()),
        (Annotated[Any, Layout(StartupParameter)], StartupParameter("", "")),
    ],
)  # fmt: skip
def test_no_value_takes_fewer_bytes_than_its_type_says(hint: Any, value: object) -> None:
    """By this a count is judged before it is believed."""
    wire, out = wire_type(hint), bytearray()
    wire.write(out, value)
    assert len(out) == wire.least


def test_the_types_of_an_errors_fields_are_ascii() -> None:
    field = Layout(ErrorField)
    for code in (1, 127):
        out = bytearray()
        field.write(out, ErrorField(chr(code), "x"))
        assert field.read(Reader(out)) == ErrorField(chr(code), "x")
    with pytest.raises(ProtocolError):
        field.read(Reader(b"\x80x\0"))
    assert len(ASCII) == 127


@pytest.mark.parametrize(("minor", "taken"), [(-1, False), (0, True), (0xFFFF, True), (0x10000, False)])
def test_a_client_begins_with_protocol_3(minor: int, taken: bool) -> None:
    if taken:
        reader = FrontendReader()
        reader.feed(write_frame(StartupMessage(PROTOCOL_3_0 + minor, ())))
        assert reader.receive() == StartupMessage(PROTOCOL_3_0 + minor, ())
        assert NegotiateProtocolVersion(PROTOCOL_3_0 + minor, ()).minor == minor
    else:
        with pytest.raises(ProtocolError):
            write_frame(StartupMessage(PROTOCOL_3_0 + minor, ()))


READERS = [
    (replication.read_xlog_data, "XLogData", b"w"),
    (replication.read_primary_keepalive, "PrimaryKeepalive", b"k"),
    (replication.read_standby_status_update, "StandbyStatusUpdate", b"r"),
    (replication.read_hot_standby_feedback, "HotStandbyFeedback", b"h"),
]


@pytest.mark.parametrize(("read", "name", "tag"), READERS, ids=[name for _, name, _ in READERS])
@pytest.mark.parametrize("payload", [b"", b"?", b"?" + bytes(60)], ids=["nothing", "a byte", "many"])
def test_a_message_of_another_kind_is_told_from_its_first_byte(
    read: Any, name: str, tag: bytes, payload: bytes
) -> None:
    with pytest.raises(ProtocolError, match=re.escape(f"{name} begins with {tag!r}, not {payload[:1]!r}.")) as raised:
        read(payload)
    assert raised.value.offset == 0


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda: TextFormat(b""), "delimiter is one byte"),
        (lambda: TextFormat(b"ab"), "delimiter is one byte"),
        (lambda: TextFormat(b"\n"), "delimiter is one byte"),
        (lambda: CsvFormat(b"\r"), "delimiter is one byte"),
        (lambda: TextFormat(null=b"a\tb"), "NULL string"),
        (lambda: TextFormat(null=b"a\nb"), "NULL string"),
        (lambda: TextFormat(null=b"a\rb"), "NULL string"),
        (lambda: TextFormat(b"\\", null=b""), "text format"),
        (lambda: TextFormat(b"."), "text format"),
        (lambda: TextFormat(b"0"), "text format"),
        (lambda: TextFormat(b"z"), "text format"),
        (lambda: CsvFormat(quote=b""), "one byte each"),
        (lambda: CsvFormat(quote=b"''", escape=b"'"), "one byte each"),
        (lambda: CsvFormat(escape=b""), "one byte each"),
        (lambda: CsvFormat(escape=b"''"), "one byte each"),
        (lambda: CsvFormat(quote=b"\n", escape=b"'"), "one byte each"),
        (lambda: CsvFormat(escape=b"\r"), "one byte each"),
        (lambda: CsvFormat(quote=b","), "neither the delimiter"),
        (lambda: CsvFormat(null=b'a"b'), "neither the delimiter"),
    ],
)
def test_each_reason_by_itself_makes_a_format_no_servers(made: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        made()


@pytest.mark.parametrize(
    ("line_format", "row", "line"),
    [
        (TextFormat(b"A"), (b"a", None), b"aA\\N\n"),
        (CsvFormat(), (b"\\.", b"", None), b'"\\.","",\n'),
        (CsvFormat(force_quote=True), (b"1", None), b'"1",\n'),
    ],
)
def test_formats_that_servers_have(line_format: LineFormat, row: Any, line: bytes) -> None:
    assert line_format.write(row) == line
    assert LineReader(line_format).feed(line) == [row]


def test_an_unknown_message_is_named_by_what_it_begins_with() -> None:
    reader = BackendReader()
    reader.feed(b"R\0\0\0\x0b\0\0\0\x63abc")
    with pytest.raises(ProtocolError, match=re.escape(r"the tag b'R' and the bytes b'\x00\x00\x00c'.")) as raised:
        reader.receive()
    assert raised.value.offset == 0


def test_a_body_goes_wrong_at_a_place() -> None:
    reader = BackendReader()
    reader.feed(b"R\0\0\0\x0b\0\0\0\5abc")  # a salt of three bytes
    with pytest.raises(
        ProtocolError, match=r"AuthenticationMD5Password\.salt needs 4 bytes where 3 are left"
    ) as raised:
        reader.receive()
    assert raised.value.offset == 4
    with pytest.raises(ProtocolError, match=r"PasswordMessage\.password is followed by 3 bytes") as followed:
        read_as(PasswordMessage, b"a\0bcd")
    assert followed.value.offset == 2


@pytest.mark.parametrize(
    ("reader", "data", "offset"),
    [
        (lambda: LineReader(TextFormat(), limit=5), b"ab\nabcdef", 3),
        (lambda: LineReader(TextFormat(), limit=5), b"ab\nabcdef\n", 3),
        (lambda: LineReader(CsvFormat(), limit=5), b'ab\n"\n\n\n\n\n', 3),
        (lambda: BinaryRowReader(limit=20), binary_header() + b"\0\0" + b"\0\1\0\0\0\x0f", 21),
        (lambda: BinaryRowReader(limit=20), binary_header() + b"\0\0" + b"\0\1\0\0\0\x0e" + bytes(15), 42),
        (BinaryRowReader, binary_header() + b"\0\0" + b"\xff\xfe", 21),
        (BinaryRowReader, binary_header() + b"\0\1\xff\xff\xff\xfe", 21),
        (BinaryRowReader, binary_header() + binary_trailer() + b"x", 21),
        (lambda: LineReader(TextFormat()), b"a\n\\.\nb", 5),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_row_goes_wrong_at_its_place_in_the_stream(reader: Any, data: bytes, offset: int, size: int) -> None:
    made: RowReader = reader()
    with pytest.raises(ProtocolError) as raised:
        for at in range(0, len(data), size):
            made.feed(data[at : at + size])
        made.close()
    assert raised.value.offset == offset


@pytest.mark.parametrize(("line", "offset"), [(b'"a', 0), (b'a,"b', 2), (b'a,b"c', 2), (b'"a"b"', 0)])
def test_a_quote_that_does_not_end_is_told_at_its_field(line: bytes, offset: int) -> None:
    with pytest.raises(ProtocolError, match="neither followed by the delimiter nor the last") as raised:
        CsvFormat().split(line)
    assert raised.value.offset == offset
