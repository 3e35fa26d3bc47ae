"""Hostile bytes end in the documented error with its place, whatever they are; other rows are none the worse."""

from __future__ import annotations

import datetime as dt
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.columnar.stream import LogRow, batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.types import TableSchema
from wal2lake.errors import ProtocolError, UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Delete, Insert, Truncate, Update
from wal2lake.pgoutput.tuples import NULL, OldTuple, TupleColumn, TupleData

MINE = 16_400
NUMERIC_12_2, NUMERIC_30_4 = (12 << 16 | 2) + 4, (30 << 16 | 4) + 4
# type OID, typmod, text form, binary form
COLUMNS = [
    (16, -1, b"t", b"\x01"),
    (17, -1, rb"\x00ff", b"\x00\xff"),
    (21, -1, b"-7", struct.pack(">h", -7)),
    (23, -1, b"12345", struct.pack(">i", 12345)),
    (20, -1, b"1234567890123", struct.pack(">q", 1234567890123)),
    (26, -1, b"4294967295", b"\xff\xff\xff\xff"),
    (700, -1, b"1.5", struct.pack(">f", 1.5)),
    (701, -1, b"-2.5e-10", struct.pack(">d", -2.5e-10)),
    (1700, NUMERIC_12_2, b"-12345.60", struct.pack(">hhHhhhh", 3, 1, 0x4000, 2, 1, 2345, 6000)),
    (1700, NUMERIC_30_4, b"1.0000", struct.pack(">hhHhh", 1, 0, 0, 4, 1)),
    (25, -1, "text with ü".encode(), "text with ü".encode()),
    (3802, -1, b"{}", b"\x01{}"),
    (2950, -1, b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", bytes.fromhex("a0eebc999c0b4ef8bb6d6bb9bd380a11")),
    (1082, -1, b"2024-02-29", struct.pack(">i", 8825)),
    (1114, -1, b"2024-02-29 01:02:03.5", struct.pack(">q", 762_483_723_500_000)),
    (1184, -1, b"2024-02-29 01:02:03.5+00", struct.pack(">q", 762_483_723_500_000)),
]
SCHEMA = TableSchema.build(
    MINE, "s", "t", [(f"c{place}", oid, typmod, None, False) for place, (oid, typmod, _, _) in enumerate(COLUMNS)]
)
TEXT = TupleData(tuple(TupleColumn("t", text) for _, _, text, _ in COLUMNS))
BINARY = TupleData(tuple(TupleColumn("b", data) for _, _, _, data in COLUMNS))
KEY = OldTuple("K", (TEXT.columns[0], *[NULL] * (len(COLUMNS) - 1)))
MESSAGES = [
    write_message(message)
    for message in (
        Insert(MINE, TEXT), Insert(MINE, BINARY), Update(MINE, None, TEXT), Update(MINE, KEY, BINARY),
        Update(MINE, OldTuple("O", TEXT.columns), BINARY), Delete(MINE, KEY),
        Delete(MINE, OldTuple("O", BINARY.columns)), Truncate(options=0, relation_ids=(1, MINE)),
    )
]  # fmt: skip
COPY_ROW = struct.pack(">h", len(COLUMNS)) + b"".join(struct.pack(">i", len(data)) + data for _, _, _, data in COLUMNS)


def log(*messages: bytes) -> list[LogRow]:
    return [(1000 + place, 1, message) for place, message in enumerate(messages)]


def one_column(message: bytes, oid: int = 25, typmod: int = -1) -> None:
    schema = TableSchema.build(MINE, "s", "t", [("c", oid, typmod, None, False)])
    decode_changes(batch(log(message)), schema)


def test_the_two_forms_say_the_same() -> None:
    changes = decode_changes(batch(log(*MESSAGES[:2])), SCHEMA)
    for array in changes.new:
        assert array[0] == array[1]
        assert array.null_count == 0


@st.composite
def mutations(draw: st.DrawFn, message: bytes) -> bytes:
    """The message cut, or with a few bytes changed, removed or put in."""
    data = bytearray(message)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(1, max(len(data) - 1, 1)))
        new = draw(
            st.sampled_from([b"", b"\x00", b"\xff", b"\x7f", b"n", b"u", b"t", b"b", b"K", b"O", b"N", b"-", b"9"])
        )
        match draw(st.sampled_from("crix")):
            case "c":
                del data[at:]
            case "r":
                data[at : at + len(new)] = new
            case "i":
                data[at:at] = new
            case "x":
                data[at : at + 4] = draw(
                    st.sampled_from([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"])
                )
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_mutated_messages(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(MESSAGES) - 1))
    mutated = data.draw(mutations(MESSAGES[place]))
    rows = log(*MESSAGES[:place], mutated, *MESSAGES[place + 1 :])
    try:
        changes = decode_changes(batch(rows), SCHEMA, unrepresentable=data.draw(st.sampled_from(["error", "null"])))
    except (PgoutputDecodeError, UnrepresentableError) as error:
        assert error.lsn == 1000 + place
        assert error.relation == "s.t"
        assert error.offset is None or 0 <= error.offset <= len(mutated)
        return
    untouched = decode_changes(batch(log(*MESSAGES)), SCHEMA)
    for found, whole in zip(changes.new, untouched.new, strict=True):
        found.validate(full=True)
        mine = {int(lsn): value for lsn, value in zip(changes.lsn, found.to_pylist(), strict=True)}
        for lsn, value in zip(untouched.lsn, whole.to_pylist(), strict=True):
            assert lsn == 1000 + place or mine[int(lsn)] == value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_copy_rows(data: st.DataObject) -> None:
    mutated = data.draw(mutations(COPY_ROW))
    try:
        arrays = decode_copy_rows([COPY_ROW, mutated, COPY_ROW], SCHEMA.columns, "s.t")
    except (PgoutputDecodeError, UnrepresentableError) as error:
        assert error.relation == "s.t"
        return
    for array in arrays:
        array.validate(full=True)
        assert array[0] == array[2]


def head(message: bytes = b"I") -> bytes:
    return message + struct.pack(">I", MINE)


@pytest.mark.parametrize(
    ("message", "offset", "reason"),
    [
        (head(), 0, "tag, relation or kind of tuple"),
        (head() + b"K\x00\x01n", 0, "tag, relation or kind of tuple"),
        (head(b"D") + b"N\x00\x01n", 0, "tag, relation or kind of tuple"),
        (head() + b"N", 6, "it ends inside its tuple"),
        (head() + b"N\x00", 6, "it ends inside its tuple"),
        (head() + b"N\x00\x02nn", 6, "2 columns where its Relation has 1"),
        (head() + b"N\x00\x01", 8, "it ends inside its tuple"),
        (head() + b"N\x00\x01z", 8, "none of n, u, t, b"),
        (head() + b"N\x00\x01t", 8, "it ends inside its tuple"),
        (head() + b"N\x00\x01t\x00\x00\x00\x02a", 8, "points behind the message's end"),
        (head() + b"N\x00\x01t\xff\xff\xff\xffa", 8, "points behind the message's end"),
        (head() + b"N\x00\x01t\x7f\xff\xff\xffa", 8, "points behind the message's end"),
        (head() + b"N\x00\x01t\x00\x00\x00\x01ab", 14, "does not end where the message does"),
        (head() + b"N\x00\x01nn", 9, "does not end where the message does"),
        (head(b"U") + b"K\x00\x01n", 9, "no new tuple follows"),
        (head() + b"N\x00\x01t\x00\x00\x00", 8, "it ends inside its tuple"),
        (head() + b"N\x00\x01t\x00\x00\x01\x00" + b"a" * 255, 8, "points behind the message's end"),
        (head(b"U") + b"K\x00\x01t\x00\x00\x00\x00", 13, "no new tuple follows"),
        (head(b"U") + b"K\x00\x01t\x00\x00\x00\x01a", 14, "no new tuple follows"),
        (head(b"U") + b"K\x00\x01t\x00\x00\x01\x02" + b"a" * 258, 271, "no new tuple follows"),
        (head(b"U") + b"K\x00\x01b\x00\x00\x00\x01a", 14, "no new tuple follows"),
        (head(b"U") + b"K\x00\x01uN\x00\x01", 12, "it ends inside its tuple"),
        (head(b"U") + b"K\x00\x01nX\x00\x01n", 9, "no new tuple follows"),
        (head(b"U") + b"K\x00\x01nN\x00\x02n", 10, "2 columns where its Relation has 1"),
        (head(b"D") + b"K\x00\x01nN\x00\x01n", 9, "does not end where the message does"),
        (b"T\xff\xff\xff\xff\x00" + struct.pack(">I", MINE), 1, "number of relations"),
        (b"T\x00", 1, "number of relations"),
        (head() + b"N\x00\x01t\x00\x00\x00\x02\xc3(", 13, "not UTF-8"),
    ],
)
def test_the_error_names_the_place(message: bytes, offset: int, reason: str) -> None:
    with pytest.raises(PgoutputDecodeError, match=reason) as raised:
        one_column(message)
    assert isinstance(raised.value, ProtocolError)
    assert (raised.value.offset, raised.value.lsn, raised.value.relation) == (offset, 1000, "s.t")


@pytest.mark.parametrize(
    ("oid", "typmod", "text"),
    [
        (16, -1, "x"), (16, -1, "true"), (17, -1, "00"), (17, -1, "\\x0"), (17, -1, "\\x0g"), (21, -1, "32768"),
        (23, -1, ""), (23, -1, "1 "), (23, -1, "-"), (20, -1, "9223372036854775808"), (26, -1, "-1"),
        (26, -1, "4294967296"), (701, -1, "secret"), (701, -1, ""), (1700, NUMERIC_12_2, "1"),
        (1700, NUMERIC_12_2, "1.5"),
        (1700, NUMERIC_12_2, "12345678901.00"), (1700, NUMERIC_12_2, "1.-5"), (1700, NUMERIC_12_2, "x.00"),
        (1700, NUMERIC_12_2, ""), (1700, NUMERIC_30_4, "secret"), (1082, -1, "2024-02-30"), (1082, -1, "secret"),
        (1082, -1, ""), (1114, -1, "2024-02-29 24:00:00"), (1114, -1, "2024-02-29 00:00:00+00"), (1184, -1, "now"),
        (1184, -1, "2024-02-29 00:00:00"),
    ],
)  # fmt: skip
def test_text_of_another_type_is_refused_and_not_shown(oid: int, typmod: int, text: str) -> None:
    good = {16: "t", 17: "\\x", 1700: "1.00" if typmod == NUMERIC_12_2 else "1.0000", 1082: "2024-01-01"}.get(oid)
    good = good or {1114: "2024-01-01 00:00:00", 1184: "2024-01-01 00:00:00+00"}.get(oid, "1")
    schema = TableSchema.build(MINE, "s", "t", [("c", oid, typmod, None, False)])
    cells = [TupleColumn("t", value.encode()) for value in (good, good, text, good)]
    rows = log(*[write_message(Insert(MINE, TupleData((cell,)))) for cell in cells])
    with pytest.raises(PgoutputDecodeError) as raised:
        decode_changes(batch(rows), schema)
    assert (raised.value.lsn, raised.value.column) == (1002, "c")
    assert "secret" not in str(raised.value)
    assert raised.value.__context__ is None  # Arrow's own error shows the value


def test_a_null_beside_the_word_infinity_is_not_to_blame() -> None:
    schema = TableSchema.build(MINE, "s", "t", [("word", 25, -1, None, False), ("day", 1082, -1, None, False)])
    word, infinite, day = TupleColumn("t", b"infinity"), TupleColumn("t", b"-infinity"), TupleColumn("t", b"2024-02-29")
    tuples = [(word, NULL), (word, day), (NULL, infinite)]
    rows = batch(log(*[write_message(Insert(MINE, TupleData(cells))) for cells in tuples]))
    with pytest.raises(UnrepresentableError) as raised:
        decode_changes(rows, schema)
    assert (raised.value.lsn, raised.value.column) == (1002, "day")
    days = decode_changes(rows, schema, unrepresentable="null").new[1]
    assert days.to_pylist() == [None, dt.date(2024, 2, 29), None]


DAY_US = 86_400_000_000
FIRST, LAST = dt.date(1, 1, 1).toordinal() - 730_120, dt.date(9999, 12, 31).toordinal() - 730_120  # from 2000-01-01 on


@pytest.mark.parametrize(
    ("oid", "form", "inside", "outside"),
    [
        (1082, ">i", (FIRST, LAST), (FIRST - 1, LAST + 1, -(2**31), 2**31 - 1)),
        (1114, ">q", (FIRST * DAY_US, (LAST + 1) * DAY_US - 1), (FIRST * DAY_US - 1, (LAST + 1) * DAY_US)),
        (1184, ">q", (FIRST * DAY_US, (LAST + 1) * DAY_US - 1), (-(2**63), 2**63 - 1)),
    ],
)
def test_the_first_and_the_last_day_of_a_lake(
    oid: int, form: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    schema = TableSchema.build(MINE, "s", "t", [("c", oid, -1, None, False)])
    cells = [TupleColumn("b", struct.pack(form, value)) for value in inside + outside]
    rows = batch(log(*[write_message(Insert(MINE, TupleData((cell,)))) for cell in cells]))
    found = decode_changes(rows, schema, unrepresentable="null").new[0]
    assert [value.is_valid for value in found] == [True] * len(inside) + [False] * len(outside)
    years = [str(value)[:4].rjust(4, "0") for value in found[:2].cast("string").to_pylist()]
    assert years == ["0001", "9999"]
    with pytest.raises(UnrepresentableError) as raised:
        decode_changes(rows, schema)
    assert raised.value.lsn == 1002
