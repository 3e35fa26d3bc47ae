"""Rows survive each COPY format, in any pieces; NULL and empty stay apart; what is cut or absurd is an error."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.errors import ConfigError, ProtocolError
from wal2lake.wire.copyformat import (
    BinaryRowReader,
    Row,
    RowReader,
    binary_header,
    binary_trailer,
    write_binary_row,
)
from wal2lake.wire.copytext import CsvFormat, LineFormat, LineReader, TextFormat

awkward = st.binary(max_size=8) | st.lists(st.sampled_from([*b"\\.N,\"'|\n\r\tx"]), max_size=8).map(bytes)
rows = st.lists(st.lists(st.none() | awkward, min_size=1, max_size=4).map(tuple), max_size=5)
pieces = st.integers(1, 20)
FORMATS: list[LineFormat] = [
    TextFormat(),
    TextFormat(b"|", b"\\N"),
    CsvFormat(),
    CsvFormat(b"|", b"\\N", quote=b"'", escape=b"\\"),
    CsvFormat(force_quote=True),
    CsvFormat(b"\t", b"NULL", escape=b"'"),
]


def in_pieces(reader: RowReader, data: bytes, size: int) -> list[Row]:
    heard = [row for start in range(0, len(data), size) for row in reader.feed(data[start : start + size])]
    reader.close()
    return heard


def binary(said: Sequence[Row]) -> bytes:
    return binary_header() + b"".join(map(write_binary_row, said)) + binary_trailer()


@given(rows, pieces)
def test_binary(said: list[Row], size: int) -> None:
    assert in_pieces(BinaryRowReader(), binary(said), size) == said


@given(rows, pieces, st.sampled_from(FORMATS))
def test_lines(said: list[Row], size: int, line_format: LineFormat) -> None:
    data = b"".join(map(line_format.write, said))
    assert in_pieces(LineReader(line_format), data, size) == said


@given(st.lists(st.lists(st.text("a,\"\n '", min_size=1), min_size=1), max_size=4))
def test_csv_is_what_other_programs_read(said: list[list[str]]) -> None:
    data = b"".join(CsvFormat().write([value.encode() for value in row]) for row in said)
    assert list(csv.reader(io.StringIO(data.decode(), newline=""))) == said


@given(rows)
def test_binary_cut_anywhere_is_an_error_with_its_offset(said: list[Row]) -> None:
    data = binary(said)
    for size in range(len(data)):
        reader = BinaryRowReader()
        reader.feed(data[:size])
        with pytest.raises(ProtocolError) as caught:
            reader.close()
        assert caught.value.offset == size


@pytest.mark.parametrize(
    ("line_format", "data", "row"),
    [
        (TextFormat(), rb"\N	\\N			\.x" + b"\n", (None, b"\\N", b"", b"", b".x")),
        (TextFormat(), rb"\101\x41\x4Z\n\q\b" + b"\n", (b"AA\x04Z\nq\b",)),
        (TextFormat(), b"a\\\nb\n", (b"a\nb",)),
        (CsvFormat(), b',"",a""b"c,"\n', (None, b"", b"abc,")),
        (CsvFormat(), b'"a""b","c\nd",x"y"z\n', (b'a"b', b"c\nd", b"xyz")),
        (CsvFormat(escape=b"\\"), rb'"a\"b\\","\c"' + b"\n", (b'a"b\\', b"\\c")),
    ],
)
def test_what_servers_and_people_write(line_format: LineFormat, data: bytes, row: Row) -> None:
    assert LineReader(line_format).feed(data) == [row]


def test_the_header_is_no_row() -> None:
    reader = LineReader(CsvFormat(header=True))
    assert reader.feed(b"id,name\n1,\n") == [(b"1", None)]
    assert reader.names == (b"id", b"name")


def test_the_end_mark_of_text() -> None:
    reader = LineReader(TextFormat())
    assert reader.feed(b"1\n\\.\n") == [(b"1",)]
    with pytest.raises(ProtocolError):
        reader.feed(b"2\n")


def test_a_value_never_becomes_null() -> None:
    with pytest.raises(ProtocolError):
        TextFormat(null=b"NULL").write([b"NULL"])
    assert CsvFormat(null=b"NULL").write([b"NULL", None]) == b'"NULL",NULL\n'


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextFormat(b"ab"),
        lambda: TextFormat(b"\n"),
        lambda: TextFormat(b"a"),
        lambda: TextFormat(b"|", b"a|b"),
        lambda: CsvFormat(b'"'),
        lambda: CsvFormat(null=b'"'),
        lambda: CsvFormat(quote=b"''"),
    ],
)
def test_options_that_the_server_refuses_too(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        make()


HEADER = binary_header()


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"PGCOPX", 0),
        (HEADER[:11] + b"\0\1\0\0" + bytes(4), 11),  # OIDs
        (HEADER[:15] + b"\x7f\xff\xff\xff", 15),
        (HEADER + b"\xff\xfe", 19),
        (HEADER + b"\0\1\xff\xff\xff\xfe", 21),
        (HEADER + b"\0\1\x7f\xff\xff\xff", 19),  # a field larger than any row may be
        (HEADER + b"\xff\xff\0", 21),
    ],
)
def test_malformed_binary_names_the_place(data: bytes, offset: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        BinaryRowReader(limit=1000).feed(data)
    assert caught.value.offset == offset


def test_rows_have_a_limit() -> None:
    for reader in (LineReader(TextFormat(), limit=10), LineReader(CsvFormat(), limit=10)):
        with pytest.raises(ProtocolError):
            reader.feed(b"x" * 11)
        with pytest.raises(ProtocolError):
            reader.feed(b"x" * 11 + b"\n")


def test_a_line_cut_within_is_an_error() -> None:
    for line_format, data in ((TextFormat(), b"1\n2"), (CsvFormat(), b'1\n"2\n')):
        reader = LineReader(line_format)
        assert reader.feed(data) == [(b"1",)]
        with pytest.raises(ProtocolError) as caught:
            reader.close()
        assert caught.value.offset == len(data)


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (BinaryRowReader, binary_header() + (32767).to_bytes(2, "big") + bytes(4 * 32767)),
        (lambda: LineReader(TextFormat()), b"a\\\n" * 100_000 + b"\n"),
        (lambda: LineReader(CsvFormat()), b'"' + b"a\n" * 100_000 + b'"\n'),
        (lambda: LineReader(CsvFormat(escape=b"\\")), b'"' + b'\\"\n' * 100_000 + b'"\n'),
    ],
    ids=["binary", "text", "csv", "csv with an escape"],
)
def test_a_long_row_in_small_pieces_is_read_in_linear_time(make: Callable[[], RowReader], data: bytes) -> None:
    reader = make()
    pieces = (reader.feed(data[at : at + 2]) for at in range(0, len(data), 2))
    assert sum(map(len, pieces)) == 1  # were each piece to begin anew, this would take hours
