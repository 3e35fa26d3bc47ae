"""Limits, ranges and versions: the last value that is taken and the first that is not."""

from __future__ import annotations

from typing import Any

import pytest

from wal2lake.errors import ConfigError, ProtocolError, ServerConfigError
from wal2lake.lsn import LSN
from wal2lake.wire.base_backup import BaseBackup
from wal2lake.wire.copyformat import (
    ROW_LIMIT,
    BinaryRowReader,
    RowReader,
    binary_header,
    binary_trailer,
    write_binary_row,
)
from wal2lake.wire.copytext import CsvFormat, LineReader, TextFormat
from wal2lake.wire.fields import (
    Bytes,
    Flag,
    Int8,
    Int16,
    Int32,
    NullableBytes,
    Oid,
    Reader,
    TimestampTz,
    ValidTransactionId,
    ValidXLogRecPtr,
    XLogRecPtr,
    read_items,
    wire_type,
)
from wal2lake.wire.framing import MESSAGE_LIMIT, STARTUP_LIMIT, BackendReader, FrontendReader, write_frame
from wal2lake.wire.messages import PROTOCOL_3_0, StartupMessage, StartupParameter

INTEGERS = [
    (Int8, 0, 255, 1),
    (Int16, -(2**15), 2**15 - 1, 2),
    (Int32, -(2**31), 2**31 - 1, 4),
    (Oid, 0, 2**32 - 1, 4),
    (ValidTransactionId, 1, 2**32 - 1, 4),
    (TimestampTz, -(2**63), 2**63 - 1, 8),
    (XLogRecPtr, 0, 2**64 - 1, 8),
    (ValidXLogRecPtr, 1, 2**64 - 1, 8),
]


@pytest.mark.parametrize(("hint", "low", "high", "size"), INTEGERS)
def test_an_integer_at_the_ends_of_its_range(hint: Any, low: int, high: int, size: int) -> None:
    wire = wire_type(hint)
    assert wire.least == size
    for value in (low, low + 1, high - 1, high):
        out = bytearray(b"..")
        wire.write(out, LSN(value) if wire.name.endswith("(XLogRecPtr)") else value)
        assert bytes(out[2:]) == (value % 2 ** (8 * size)).to_bytes(size, "big")
        reader = Reader(out, 2)
        assert (wire.read(reader), reader.left) == (value, 0)
    for value in (low - 1, high + 1):
        with pytest.raises(ProtocolError):
            wire.write(bytearray(), value)


@pytest.mark.parametrize("hint", [ValidTransactionId, ValidXLogRecPtr])
def test_nothing_is_no_transaction_and_no_position(hint: Any) -> None:
    with pytest.raises(ProtocolError, match="is 0, which does not lie between 1 and"):
        wire_type(hint).read(Reader(bytes(8)))


@pytest.mark.parametrize(
    ("read", "data", "size", "left"),
    [
        (lambda reader: reader.peek(), b"", 1, 0),
        (wire_type(Flag).read, b"", 1, 0),
        (wire_type(Int32).read, b"abc", 4, 3),
        (Bytes().read, b"\0\0\0\5abcd", 5, 4),
        (NullableBytes().read, b"\0\0\0\1", 1, 0),
        (lambda reader: reader.take(3), b"ab", 3, 2),
        (lambda reader: reader.take(-1), b"ab", -1, 2),
    ],
)
def test_what_is_missing_is_told_in_bytes(read: Any, data: bytes, size: int, left: int) -> None:
    with pytest.raises(ProtocolError, match=rf"needs {size} bytes where {left} are left") as raised:
        read(Reader(data))
    assert raised.value.offset == len(data) - left


def test_all_that_is_there_may_be_taken() -> None:
    reader = Reader(b"abc")
    assert (reader.take(0), reader.take(3), reader.take(0), reader.left) == (b"", b"abc", b"", 0)
    assert [wire_type(Flag).read(Reader(bytes([value]))) for value in (0, 1)] == [False, True]
    with pytest.raises(ProtocolError, match="is 2, neither 0 nor 1"):
        wire_type(Flag).read(Reader(b"\2"))
    nullable = NullableBytes()
    assert [nullable.read(Reader(data)) for data in (b"\xff\xff\xff\xff", bytes(4))] == [None, b""]
    with pytest.raises(ProtocolError, match="-2"):
        nullable.read(Reader(b"\xff\xff\xff\xfe"))


def test_a_count_is_believed_when_so_many_bytes_are_left() -> None:
    assert read_items(Reader(b"\0\1\0\2"), 2, wire_type(Int16)) == (1, 2)
    assert read_items(Reader(b""), 0, wire_type(Int16)) == ()
    for count, data in ((2, b"\0\1\0"), (-1, b"\0\1")):
        with pytest.raises(ProtocolError, match=f"announces {count} items where {len(data)} bytes are left"):
            read_items(Reader(data), count, wire_type(Int16))


@pytest.mark.parametrize(("announced", "taken"), [(3, False), (5, True), (4 + 10, True), (4 + 11, False)])
def test_a_frame_up_to_its_limit(announced: int, taken: bool) -> None:
    reader = BackendReader(limit=10)
    reader.feed(b"N" + announced.to_bytes(4, "big"))
    if taken:
        assert reader.receive() is None  # the rest is still to come
    else:
        with pytest.raises(ProtocolError, match=rf"announces {announced - 4} bytes; 0 to 10 are allowed") as raised:
            reader.receive()
        assert raised.value.offset == 1


def test_the_limits_are_postgresqls() -> None:
    assert ROW_LIMIT == 0x3FFFFFFF  # MaxAllocSize, src/include/utils/memutils.h
    assert MESSAGE_LIMIT == 0x3FFFFFFF - 1  # PQ_LARGE_MESSAGE_LIMIT, src/include/libpq/libpq.h
    assert STARTUP_LIMIT == 10_000  # MAX_STARTUP_PACKET_LENGTH, src/include/libpq/pqcomm.h


def startup(user: str) -> StartupMessage:
    return StartupMessage(PROTOCOL_3_0, (StartupParameter("user", user),))


@pytest.mark.parametrize(("size", "taken"), [(STARTUP_LIMIT, True), (STARTUP_LIMIT + 1, False)])
def test_a_startup_message_up_to_the_servers_limit(size: int, taken: bool) -> None:
    frame = write_frame(startup("x"))
    long = write_frame(startup("x" * (size - len(frame) + 4 + 1)))
    assert len(long) == size + 4
    reader = FrontendReader()
    reader.feed(long)
    if taken:
        assert isinstance(reader.receive(), StartupMessage)
    else:
        with pytest.raises(ProtocolError, match=f"0 to {STARTUP_LIMIT} are allowed"):
            reader.receive()


def test_only_the_low_half_of_the_copy_flags_may_be_set() -> None:
    head = binary_header()
    row = write_binary_row([b"1"])
    assert BinaryRowReader().feed(head[:11] + b"\0\0\xff\xff" + head[15:] + row) == [(b"1",)]
    for bit in range(16, 32):
        with pytest.raises(ProtocolError, match="critical flags") as raised:
            BinaryRowReader().feed(head[:11] + (1 << bit).to_bytes(4, "big") + head[15:])
        assert (raised.value.offset, "OIDs" in str(raised.value)) == (11, bit == 16)


@pytest.mark.parametrize(("size", "taken"), [(0, True), (1, True), (100, True), (101, False)])
def test_a_header_extension_up_to_the_limit(size: int, taken: bool) -> None:
    data = binary_header()[:15] + size.to_bytes(4, "big") + bytes(size) + write_binary_row([b"1"]) + binary_trailer()
    for cut in (len(data), 1 if size < 2 else 50 + size):
        reader = BinaryRowReader(limit=100)
        if not taken:
            with pytest.raises(ProtocolError, match="101 bytes more"):
                reader.feed(data)
            continue
        assert [row for at in range(0, len(data), cut) for row in reader.feed(data[at : at + cut])] == [(b"1",)]
        reader.close()


@pytest.mark.parametrize(
    ("reader", "row"),
    [
        (lambda: BinaryRowReader(limit=20), lambda size: write_binary_row([b"x" * (size - 6)])),
        (lambda: LineReader(TextFormat(), limit=20), lambda size: b"x" * size + b"\n"),
        (lambda: LineReader(CsvFormat(), limit=20), lambda size: b"x" * size + b"\n"),
    ],
    ids=["binary", "text", "csv"],
)
def test_a_row_up_to_the_limit(reader: Any, row: Any) -> None:
    made: RowReader = reader()
    head = binary_header() if isinstance(made, BinaryRowReader) else b""
    assert len(made.feed(head + row(20) + row(20))) == 2
    with pytest.raises(ProtocolError, match="longer than 20 bytes"):
        reader().feed(head + row(21))


@pytest.mark.parametrize(("rate", "taken"), [(31, False), (32, True), (1 << 20, True), ((1 << 20) + 1, False)])
def test_a_base_backups_rate(rate: int, taken: bool) -> None:
    if taken:
        assert BaseBackup(max_rate=rate).build(180000) == f"BASE_BACKUP (MAX_RATE {rate})"
    else:
        with pytest.raises(ConfigError, match=f"{rate} does not"):
            BaseBackup(max_rate=rate)


@pytest.mark.parametrize(
    ("given", "since"),
    [
        ({"target": "blackhole"}, 150000),
        ({"target": "server", "target_detail": "/x"}, 150000),
        ({"compression": "gzip"}, 150000),
        ({"compression": "gzip", "compression_detail": "9"}, 150000),
        ({"verify_checksums": False}, 110000),
        ({"manifest": "yes"}, 130000),
        ({"manifest": "yes", "manifest_checksums": "SHA256"}, 130000),
        ({"incremental": True}, 170000),
    ],
)
def test_the_first_server_that_knows_an_option_of_base_backup(given: dict[str, Any], since: int) -> None:
    command = BaseBackup(**given)
    assert command.build(since).startswith("BASE_BACKUP")
    with pytest.raises(ServerConfigError, match=f"PostgreSQL {since // 10000} and later do"):
        command.build(since - 1)
