"""Values at the edges of their types in each form that a server sends, and what becomes of them; typmods at theirs.

Text is as the types' output functions write it, binary as their send functions do.
Source: src/backend/utils/adt/ (datetime.c EncodeDateTime, float.c, uuid.c, varlena.c, numeric.c make_numeric_typmod).
"""

from __future__ import annotations

import datetime as dt
import random
import re
import struct
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

from tests.columnar.stream import batch
from wal2lake.columnar import copy_rows
from wal2lake.columnar.arrays import gather, to_arrow, to_numpy
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.copy_rows import decode_copy_rows
from wal2lake.columnar.headers import RELATION, MessageColumns, truncated_relations
from wal2lake.columnar.types import TableSchema, column_type, output_text
from wal2lake.errors import RESYNC, ProtocolError, UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert, Truncate
from wal2lake.pgoutput.tuples import NULL, UNCHANGED, TupleColumn, TupleData

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 25, 26, 700, 701
DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC, UUID_OID, JSONB = 1082, 1114, 1184, 1700, 2950, 3802
EPOCH, EPOCH_TZ = dt.datetime(2000, 1, 1), dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
ALL_NIBBLES = [
    "01234567-89ab-cdef-fedc-ba9876543210",
    "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
    "ffffffff" + "-ffff" * 3 + "-" + "f" * 12,
]
FLOATS = ["0", "1.5", "-2.25", "Infinity", "-Infinity"]
WORDS = ["", "a", "t", "N", "NaN", "infinity", "ü", "😀", "\x7f", "\u0080", "x" * 300, "\t\n\\"]


def micros(value: dt.datetime) -> bytes:
    start = EPOCH if value.tzinfo is None else EPOCH_TZ
    return struct.pack(">q", (value - start) // dt.timedelta(microseconds=1))


def moments() -> list[dt.datetime]:
    days = [
        dt.datetime(*day)
        for day in ((1, 1, 1), (99, 12, 31), (1969, 12, 31), (2000, 1, 1), (2024, 2, 29), (9999, 12, 31))
    ]
    times = [(0, 0, 0, 0), (23, 59, 59, 999999), (1, 2, 3, 450000), (10, 20, 30, 1)]
    return [day.replace(hour=h, minute=m, second=s, microsecond=us) for day in days for h, m, s, us in times]


def iso(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


# type OID: of each value its text, its binary form, and itself
VALUES: dict[int, list[tuple[str, bytes, object]]] = {
    BOOL: [("t", b"\1", True), ("f", b"\0", False)],
    BYTEA: [("\\x" + data.hex(), data, data) for data in (b"", b"\0", b"\x9a\xf0", bytes(range(256)))],
    TEXT: [(word, word.encode(), word) for word in WORDS],
    JSONB: [(word, b"\1" + word.encode(), word) for word in ("", "{}", "[]", '"ü"', "1")],
    UUID_OID: [(text, UUID(text).bytes, text) for text in ALL_NIBBLES],
    OID: [(str(n), struct.pack(">I", n), n) for n in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)],
    DATE: [
        (str(day.date()), struct.pack(">i", (day - EPOCH).days), day.date()) for day in moments() if not day.hour
    ],
    TIMESTAMP: [(iso(value), micros(value), value) for value in moments()],
    TIMESTAMPTZ: [
        (iso(value) + "+00", micros(value.replace(tzinfo=dt.UTC)), value.replace(tzinfo=dt.UTC)) for value in moments()
    ],
    **{
        oid: [
            (str(n), struct.pack(code, n), n)
            for n in (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 2) + 0x55)
        ]
        for oid, code, bits in ((INT2, ">h", 16), (INT4, ">i", 32), (INT8, ">q", 64))
    },
    **{
        oid: [(text, struct.pack(code, float(text)), float(text)) for text in FLOATS]
        for oid, code in ((FLOAT4, ">f"), (FLOAT8, ">d"))
    },
}  # fmt: skip
Form = Literal["t", "b"]


def schema(oid: int, typmod: int = -1) -> TableSchema:
    return TableSchema.build(7, "s", "t", [("a", TEXT, -1, None, False), ("c", oid, typmod, None, False)])


def decoded(oid: int, cells: Sequence[TupleColumn], typmod: int = -1, **options: Any) -> pa.Array:
    """The cells behind another column of a length that differs from row to row."""
    rows = [TupleData((TupleColumn("t", b"x" * (n % 3)), cell)) for n, cell in enumerate(cells)]
    made = batch([(100 + n, 1, write_message(Insert(7, row))) for n, row in enumerate(rows)])
    found = decode_changes(made, schema(oid, typmod), **options).new[1]
    found.validate(full=True)
    return found


@pytest.mark.parametrize("oid", VALUES)
def test_each_value_in_both_forms(oid: int) -> None:
    texts, binaries, values = (list(column) for column in zip(*VALUES[oid], strict=True))
    as_text = [TupleColumn("t", text.encode()) for text in texts]
    as_binary = [TupleColumn("b", data) for data in binaries]
    assert decoded(oid, as_text).to_pylist() == values
    assert decoded(oid, as_binary).to_pylist() == values
    for cells in (as_text, as_binary):  # among NULLs, and where kinds differ
        between = [cell for pair in zip(cells, [NULL] * len(cells), strict=True) for cell in pair]
        assert decoded(oid, [NULL, *between, UNCHANGED]).to_pylist() == [
            None, *(value for pair in values for value in (pair, None)), None,
        ]  # fmt: skip
    both = [cell for pair in zip(as_binary, as_text, strict=True) for cell in pair]
    assert decoded(oid, [NULL, *both]).to_pylist() == [None, *(value for value in values for _ in range(2))]


@pytest.mark.parametrize("oid", VALUES)
def test_each_value_in_a_copy(oid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of one row, of several, and in one; NULLs among them."""
    cells = [data for _, data, _ in VALUES[oid]]
    rows = [
        b"\0\2" + struct.pack(">i", n % 3) + b"x" * (n % 3) + _copied(cell)
        for n, cell in enumerate([None, *cells, None])
    ]
    values = [None, *(value for _, _, value in VALUES[oid]), None]
    for size in (1, len(rows) - 1, len(rows), len(rows) + 1):
        monkeypatch.setattr(copy_rows, "BLOCK_ROWS", size)
        texts, found = decode_copy_rows(rows, schema(oid).columns, "s.t")
        assert texts.to_pylist() == ["x" * (n % 3) for n in range(len(rows))]
        assert found.to_pylist() == values
    assert [len(array) for array in decode_copy_rows([], schema(oid).columns, "s.t")] == [0, 0]


def test_every_row_of_a_wide_table_is_what_it_is_alone() -> None:
    """Whatever stands beside it: values of all types and NULLs in each place, more than are gathered at once."""
    oids = [*VALUES, NUMERIC] * 4
    described = [(f"c{place}", oid, (12 << 16 | 2) + 4 if oid == NUMERIC else -1, None, False)
                 for place, oid in enumerate(oids)]  # fmt: skip
    columns = TableSchema.build(7, "s", "t", described).columns
    numerics = [struct.pack(">HhHH", 0, 0, 0, 2), struct.pack(">HhHH3H", 3, 1, 0x4000, 2, 12, 3456, 7800)]
    choices = [numerics if oid == NUMERIC else [data for _, data, _ in VALUES[oid]] for oid in oids]
    generator = random.Random(7)
    rows = []
    for nulls in (0.0, 0.0, 0.05, 0.5, 1.0):
        cells = [[None if generator.random() < nulls else generator.choice(some) for some in choices] for _ in range(9)]
        rows += [struct.pack(">h", len(oids)) + b"".join(map(_copied, row)) for row in cells]
    alone = [[array.to_pylist() for array in decode_copy_rows([row], columns, "s.t")] for row in rows]
    for part in (rows[:18], rows[9:27], rows[27:], rows):
        together = decode_copy_rows(part, columns, "s.t")
        first = rows.index(part[0])
        for place, array in enumerate(together):
            array.validate(full=True)
            assert array.to_pylist() == [value for row in alone[first : first + len(part)] for value in row[place]]


def _copied(cell: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if cell is None else struct.pack(">i", len(cell)) + cell


@pytest.mark.parametrize(
    ("row", "bad"),
    [(b"", True), (b"\0\1\0\0\0\0", True), (b"\0\2\0\0\0\0\0\0\0\0\0", True), (b"\0\2\0\0\0\0\0\0\0\1", True),
     (b"\0\2\0\0\0\0\0\0\0\0", False), (b"\0\2\xff\xff\xff\xff\xff\xff\xff\xff", False), (b"\xff\xff", True)],
)  # fmt: skip
def test_what_is_no_row_of_a_copy(row: bytes, bad: bool) -> None:
    good = b"\0\2\0\0\0\1a\0\0\0\1b"
    if not bad:
        assert [len(array) for array in decode_copy_rows([good, row], schema(TEXT).columns, "s.t")] == [2, 2]
        return
    with pytest.raises(PgoutputDecodeError, match="no COPY binary row of 2 columns") as raised:
        decode_copy_rows([good, row, good], schema(TEXT).columns, "s.t")
    assert (raised.value.relation, raised.value.offset) == ("s.t", 0)


HOMELESS = {
    DATE: ["infinity", "-infinity", "0001-12-31 BC", "4713-01-01 BC", "10000-01-01", "99999-12-31", "294276-01-01"],
    TIMESTAMP: ["infinity", "-infinity", "0044-03-15 12:00:00 BC", "0001-12-31 23:59:59.999999 BC",
                "10000-01-01 00:00:00", "19999-01-01 00:00:00", "294276-12-31 23:59:59.999999"],
    TIMESTAMPTZ: ["infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00+00",
                  "90000-01-01 00:00:00.5+00"],
}  # fmt: skip


@pytest.mark.parametrize("oid", HOMELESS)
def test_a_time_that_the_lake_has_no_place_for(oid: int) -> None:
    good, _, value = VALUES[oid][1]
    for text in HOMELESS[oid]:
        cells = [TupleColumn("t", word.encode()) for word in (good, text, good)]
        with pytest.raises(UnrepresentableError, match="years 1 to 9999") as raised:
            decoded(oid, cells)
        assert (raised.value.lsn, raised.value.column) == (101, "c")
        assert decoded(oid, [NULL, *cells, NULL], unrepresentable="null").to_pylist() == [
            None,
            value,
            None,
            value,
            None,
        ]


@pytest.mark.parametrize(
    ("oid", "texts"),
    [
        (
            DATE,
            ["xxinfinity", "infinit", "--infinity", "0001-1-01 BC", " BC", "1000a-01-01", "10000-1-1", "2024-01-01 AD"],
        ),
        (TIMESTAMP, ["xxinfinity", "0024-1-01 BC", "1000/-01-01 00:00:00", "1000:-01-01 00:00:00"]),
        (NUMERIC, ["NaNN", "Na", "nan", "xNaN", "N"]),
    ],
)
@pytest.mark.parametrize("policy", ["error", "null"])
def test_what_only_looks_like_a_value_without_a_place(oid: int, texts: list[str], policy: Any) -> None:
    typmod = 12 << 16 | 2 + 4 if oid == NUMERIC else -1
    good = "1.00" if oid == NUMERIC else VALUES[oid][0][0]
    for text in texts:
        with pytest.raises(PgoutputDecodeError, match="not of its column's type") as raised:
            decoded(oid, [TupleColumn("t", word.encode()) for word in (good, text)], typmod, unrepresentable=policy)
        assert raised.value.lsn == 101


@pytest.mark.parametrize(("precision", "scale"), [(12, 2), (18, 0), (18, 18), (19, 4), (38, 38)])
@pytest.mark.parametrize("form", ["t", "b"])
def test_not_a_number_among_numbers(precision: int, scale: int, form: Form) -> None:
    forms = {"t": b"NaN", "b": struct.pack(">hhHh", 0, 0, 0xC000, 0)}
    zero = {"t": b"0." + b"0" * scale if scale else b"0", "b": struct.pack(">hhHh", 0, 0, 0, scale)}
    typmod = (precision << 16 | scale) + 4
    cells = [TupleColumn(form, cell) for cell in (zero[form], forms[form], zero[form])]
    with pytest.raises(UnrepresentableError, match="NaN in a numeric") as raised:
        decoded(NUMERIC, cells, typmod)
    assert raised.value.lsn == 101
    assert "pipeline.text_columns" in str(raised.value.hint)
    found = decoded(NUMERIC, [NULL, *cells, cells[1]], typmod, unrepresentable="null")
    assert [value if value is None else int(value) for value in found.to_pylist()] == [None, 0, None, 0, None]
    assert decoded(NUMERIC, [cells[1]] * 2, typmod, unrepresentable="null").null_count == 2


@pytest.mark.parametrize(
    ("oid", "data"),
    [(BOOL, b"\2"), (BOOL, b""), (BOOL, b"\0\0"), (INT2, b"\0"), (INT4, b"\0" * 5), (INT8, b"\0" * 7),
     (FLOAT8, b"\0" * 9), (OID, b"\0" * 3), (DATE, b"\0" * 8), (TIMESTAMP, b"\0" * 4), (UUID_OID, b"\0" * 15),
     (UUID_OID, b"\0" * 17),
     (JSONB, b""), (JSONB, b"\0{}"), (JSONB, b"\2{}")],
)  # fmt: skip
def test_binary_of_another_type_is_refused(oid: int, data: bytes) -> None:
    good = TupleColumn("b", VALUES[oid][0][1])
    with pytest.raises(PgoutputDecodeError, match="not of its column's type") as raised:
        decoded(oid, [good, good, TupleColumn("b", data), good])
    assert (raised.value.lsn, raised.value.column) == (102, "c")


def test_binary_without_a_place_in_the_table_is_named() -> None:
    with pytest.raises(UnrepresentableError, match="binary form") as raised:
        decoded(99999, [NULL, TupleColumn("t", b"a"), TupleColumn("b", b"a"), TupleColumn("b", b"b")])
    assert (raised.value.lsn, raised.value.hint) == (102, RESYNC)


NO_HEX = [b"", b"]x00", b"\\", b"\\xg0", b"\\x0g", b"\\x0\xff", b"\\x00A0", b"\\y00", b"\\x0", b"0000"]


@pytest.mark.parametrize(
    ("oid", "good", "bad"),
    [
        *((BYTEA, b"\\x00", bad) for bad in NO_HEX),
        *((TEXT, b"a", bad) for bad in (b"\x80", b"\xff", b"\xc3", b"a\xc3(", b"\xed\xa0\x80")),
        *((BOOL, b"t", bad) for bad in (b"", b"x", b"T", b"tt")),
    ],
)
def test_the_first_of_several_cells_that_are_no_value_is_blamed(oid: int, good: bytes, bad: bytes) -> None:
    for at in (0, 1, 3):
        cells = [*[good] * at, bad, good, bad]
        with pytest.raises(PgoutputDecodeError, match="not of its column's type") as raised:
            decoded(oid, [TupleColumn("t", cell) for cell in cells])
        assert (raised.value.lsn, raised.value.column) == (100 + at, "c")


# -- typmods


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize("precision", [1, 2, 18, 19, 37, 38, 39, 40, 100, 999, 1000])
def test_a_numeric_of_every_scale(precision: int) -> None:
    for scale in {-1000, -999, -1, 0, 1, 2, 37, 38, 39, 999, 1000, precision - 1, precision, precision + 1} - {1001}:
        fits = precision <= 38 and 0 <= scale <= precision
        found = column_type(NUMERIC, numeric(precision, scale))
        assert found.arrow == (pa.decimal128(precision, scale) if fits else pa.string())
        assert (found.known, found.typmod, found.oid) == (fits, numeric(precision, scale), NUMERIC)


@pytest.mark.parametrize(
    "typmod", [-(2**31), -(2**31) + 3, -65536, -1, 0, 1, 3, 4, 5, 2**31 - 1, numeric(0, 0), numeric(0, 1)]
)
def test_a_typmod_that_no_numeric_has_is_text(typmod: int) -> None:
    assert column_type(NUMERIC, typmod) == output_text(NUMERIC, typmod)


@pytest.mark.parametrize("oid", [1042, 1043, TIMESTAMP, TIMESTAMPTZ, TEXT, INT4])
def test_other_typmods_change_no_type(oid: int) -> None:
    plain = column_type(oid)
    for typmod in (-1, 0, 3, 4, 5, 6, 8, 14, numeric(1, 0), 2**31 - 1):
        assert column_type(oid, typmod).arrow == plain.arrow
        assert column_type(oid, typmod).codec == plain.codec
    assert output_text(oid).typmod == -1


def test_a_digest_is_kept_and_never_changes() -> None:
    """Documents of the log hold it: what a later version makes of the same columns must be the same."""
    columns = [("id", INT8, -1, None, True), ("n", NUMERIC, numeric(12, 2), None, False)]
    assert TableSchema.build(1, "s", "t", columns).digest == "56c04e4a555954a5"


# -- arrays


@pytest.mark.parametrize("data", [b"", b"a", b"abc", b"abcd", b"abcde"])
def test_fields_are_gathered_up_to_the_last_byte(data: bytes) -> None:
    for kind, size in (("u1", 1), (">u2", 2), (">u4", 4), (">u8", 8)):
        at = list(range(len(data) - size + 1))
        found = gather(data, kind, to_numpy(pa.array(at, pa.int64())))
        assert found.tolist() == [int.from_bytes(data[place : place + size], "big") for place in at]


def test_numbers_of_a_part_of_a_column() -> None:
    whole = pa.array(range(10), pa.uint32())
    assert to_numpy(whole.slice(3, 4)).tolist() == [3, 4, 5, 6]
    assert to_numpy(whole.slice(10)).tolist() == []
    assert to_arrow(to_numpy(whole)[::2], pa.uint64()) == pa.array([0, 2, 4, 6, 8], pa.uint64())


# -- messages


def test_a_message_of_no_type_is_refused_whatever_its_first_byte_is() -> None:
    long = bytes(60)
    for tag in range(256):
        if chr(tag) in "BCORYIUDTMASEcbPpKr":
            assert MessageColumns.of([(1, bytes([tag]) + long)]).tag.tolist() == [tag]
            continue
        with pytest.raises(ProtocolError, match=re.escape(f"a message of type {chr(tag)!r} and 61 bytes")) as raised:
            MessageColumns.of([(1, b"O" + long), (2, bytes([tag]) + long)])
        assert (raised.value.lsn, raised.value.offset) == (2, 0)
    with pytest.raises(ProtocolError, match="no type and 0 bytes"):
        MessageColumns.of([(1, b"")])
    assert [len(MessageColumns.of([])), MessageColumns.of([]).rows_of(RELATION).tolist()] == [0, []]


def test_the_relations_of_a_truncate() -> None:
    said = b"T" + struct.pack(">IB3I", 3, 1, 7, 2**32 - 1, 8)
    assert truncated_relations(said) == [7, 2**32 - 1, 8]
    assert truncated_relations(b"T" + struct.pack(">IB", 0, 3)) == []
    for wrong in (said[:-1], said + b"\0", said[:-4], said + bytes(4)):
        with pytest.raises(ProtocolError, match="as long as its number of relations") as raised:
            truncated_relations(wrong)
        assert raised.value.offset == 1


def test_of_many_truncates_those_are_found_that_name_the_relation() -> None:
    named = [(7,), (8,), (8, 7), (9, 8, 7, 9), (8, 9), (7, 7), (2**31 + 7,)]
    rows = [(100 + n, 1, write_message(Truncate(ids, 0))) for n, ids in enumerate(named)]
    assert decode_changes(batch(rows), schema(TEXT)).row.tolist() == [n for n, ids in enumerate(named) if 7 in ids]
