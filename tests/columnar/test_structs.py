"""Composites, ranges, multiranges, maps and the rest by hand: what no server writes is refused, with its row."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from tests.columnar.stream import batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.type_table import EDITION
from wal2lake.columnar.types import TableSchema, TypeRules, column_type
from wal2lake.errors import SchemaChangeError, UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import TupleColumn, TupleData
from wal2lake.user_types import Part, UserType

PAIR, HSTORE, VECTOR, HALFVEC, GEOMETRY, BOXES, RANGE = range(20_000, 20_007)
INT4RANGE, INT4MULTIRANGE, TIME, TIMETZ, MONEY, XID8, TSTZRANGE = 3904, 4451, 1083, 1266, 790, 5069, 3910
MADE = (
    UserType(PAIR, "composite", "pair", (Part("a", 23, -1), Part("b", 25, -1))),
    UserType(HSTORE, "hstore", "hstore"),
    UserType(VECTOR, "vector", "vector"),
    UserType(HALFVEC, "halfvec", "halfvec"),
    UserType(GEOMETRY, "geometry", "geometry"),
)
RULES = TypeRules(EDITION, user_types=MADE)


def decoded(oid: int, cells: list[bytes], form: Any = "t", rules: TypeRules = RULES, **options: Any) -> list[Any]:
    schema = TableSchema.build(7, "s", "t", [("c", oid, -1, None, False)], rules=rules)
    rows = [
        (100 + place, 1, write_message(Insert(7, TupleData((TupleColumn(form, cell),)))))
        for place, cell in enumerate(cells)
    ]
    found = decode_changes(batch(rows), schema, **options).new[0]
    found.validate(full=True)
    values: list[Any] = found.to_pylist()
    return values


def field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def composite(*fields: tuple[int, bytes | None]) -> bytes:
    return struct.pack(">i", len(fields)) + b"".join(struct.pack(">I", oid) + field(value) for oid, value in fields)


SEVEN = struct.pack(">i", 7)
GOOD_TEXT = {
    PAIR: b'(7,"a ""b"" \\\\")', INT4RANGE: b"[1,7)", INT4MULTIRANGE: b"{[1,7),[9,)}", HSTORE: b'"a"=>"1", "b"=>NULL',
    TIME: b"12:34:56.7", TIMETZ: b"12:34:56+05:30", MONEY: b"-$1,234.56", XID8: b"18446744073709551615",
    VECTOR: b"[1,-2.5]", GEOMETRY: b"0101000020E6100000", HALFVEC: b"[0.5]",
}  # fmt: skip
BAD_TEXT = {
    PAIR: [
        b"",
        b"(",
        b"7,a",
        b"(7,a",
        b'(7,"a)',
        b'(7,"a"b)',
        b'(7,"a"b")',
        b'(7,")',
        b"(x,a)",
        b"(7,a\\b)",
        b'(7,a"b"c)',
    ],
    INT4RANGE: [b"", b"[1", b"[1,2", b"1,2)", b"[1)", b"[1,2,3)", b"[x,2)", b"empty ", b'["1,2)', b"emptx"],
    INT4MULTIRANGE: [
        b"",
        b"{",
        b"[1,2)",
        b"{[1,2)",
        b"{[1,2)[3,4)}",
        b"{[1,2),}",
        b"{,[1,2)}",
        b"{x}",
        b"{)[}",
        b"{[1,2)]}",
    ],
    HSTORE: [
        b'"a"',
        b'"a"=>',
        b'"a"=>1',
        b'"a"=>"1","b"=>"2"',
        b'a=>"1"',
        b'"a"=>"1", ',
        b'"a"=>NULX ',
        b'"a',
        b'"a"=>NULL"b"',
    ],
    TIME: [
        b"",
        b"12:34",
        b"12:34:56.",
        b"12:34:56.1234567",
        b"12-34-56",
        b"1x:00:00",
        b"24:00:01",
        b"12:60:00",
        b"12:34:5678",
    ],
    TIMETZ: [
        b"12:34:56",
        b"12:34:56+",
        b"12:34:56+5",
        b"12:34:56+16:00",
        b"12:34:56+0x",
        b"12:34:56+05-30",
        b"12:34:56+05:60",
        b"12:34:56+05:30:60",
        b"+05",
        b"",
    ],
    MONEY: [b"", b"$", b"-", b"12345678901234567890"],
    XID8: [b"", b"x", b"-"],
    VECTOR: [b"", b"[]", b"1,2", b"[1,x]", b"[1,]"],
    GEOMETRY: [b"0", b"0G", b"0101 "],
}
GOOD_BINARY = {
    PAIR: composite((23, SEVEN), (25, b'a "b" \\')),
    INT4RANGE: b"\2" + field(struct.pack(">i", 1)) + field(SEVEN),
    INT4MULTIRANGE: struct.pack(">i", 2) + field(b"\2" + field(struct.pack(">i", 1)) + field(SEVEN))
    + field(b"\x12" + field(struct.pack(">i", 9))),
    HSTORE: struct.pack(">i", 2) + field(b"a") + field(b"1") + field(b"b") + field(None),
    TIME: struct.pack(">q", 45_296_700_000),
    TIMETZ: struct.pack(">qi", 45_296_000_000, -19_800),
    MONEY: struct.pack(">q", -123_456),
    XID8: b"\xff" * 8,
    VECTOR: struct.pack(">hhff", 2, 0, 1, -2.5),
    GEOMETRY: bytes.fromhex("0101000020E6100000"),
    HALFVEC: struct.pack(">hhe", 1, 0, 0.5),
}  # fmt: skip
BAD_BINARY = {
    PAIR: [
        b"",
        b"\0\0\0",
        composite((23, SEVEN)) + b"x",
        composite((23, SEVEN), (25, b"a"))[:-1],
        composite((23, b"abc"), (25, b"a")),
        struct.pack(">iIi", 1, 23, 2**31 - 1),
    ],
    INT4RANGE: [
        b"",
        b"\1x",
        b"\x40",
        b"\2",
        b"\2" + field(SEVEN),
        b"\2" + field(SEVEN) + field(SEVEN) + b"x",
        b"\2" + field(b"abc") + field(SEVEN),
    ],
    INT4MULTIRANGE: [
        b"",
        struct.pack(">i", 1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 1) + field(None),
        struct.pack(">i", 1) + field(b"\2"),
        struct.pack(">i", 0) + b"x",
    ],
    HSTORE: [
        b"",
        struct.pack(">i", 1),
        struct.pack(">i", -1),
        struct.pack(">i", 1) + field(None) + field(b"x"),
        struct.pack(">i", 1) + field(b"a"),
        struct.pack(">i", 0) + b"x",
        struct.pack(">i", 1) + field(b"\xff") * 2,
    ],
    TIME: [b"", struct.pack(">q", -1), struct.pack(">q", 86_400_000_001)],
    TIMETZ: [b"", struct.pack(">qi", 0, 16 * 3600), struct.pack(">qi", -1, 0)],
    MONEY: [b"1234567"],
    XID8: [b"1234567"],
    VECTOR: [b"", struct.pack(">hhf", 2, 0, 1), struct.pack(">hh", 0, 0) + b"x"],
    HALFVEC: [struct.pack(">hhf", 1, 0, 1)],
}


@pytest.mark.parametrize("oid", GOOD_TEXT)
def test_both_forms_say_the_same(oid: int) -> None:
    text, binary = decoded(oid, [GOOD_TEXT[oid]] * 3), decoded(oid, [GOOD_BINARY[oid]] * 3, "b")
    assert text == binary
    assert text[0] is not None


@pytest.mark.parametrize(("oid", "text"), [(HSTORE, b""), (INT4MULTIRANGE, b"{}"), (INT4RANGE, b"empty")])
def test_nothing_but_empty_ones(oid: int, text: bytes) -> None:
    """As in a block of few rows: there is no key, range or bound in any of them."""
    binary = b"\1" if oid == INT4RANGE else bytes(4)
    assert decoded(oid, [text]) == decoded(oid, [binary], "b") != [None]


@pytest.mark.parametrize(("oid", "bad"), [(oid, bad) for oid, every in BAD_TEXT.items() for bad in every])
def test_text_that_no_server_writes(oid: int, bad: bytes) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded(oid, [GOOD_TEXT[oid], GOOD_TEXT[oid], bad, GOOD_TEXT[oid]])
    assert (raised.value.column, raised.value.lsn) == ("c", 102)


@pytest.mark.parametrize(("oid", "bad"), [(oid, bad) for oid, every in BAD_BINARY.items() for bad in every])
def test_bytes_that_no_server_writes(oid: int, bad: bytes) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded(oid, [GOOD_BINARY[oid], GOOD_BINARY[oid], bad, GOOD_BINARY[oid]], "b")
    assert (raised.value.column, raised.value.lsn) == ("c", 102)


def test_a_composite_that_has_grown_has_null_in_older_values_and_never_loses_one() -> None:
    assert decoded(PAIR, [b"(1)", b"(,)"]) == [{"a": 1, "b": None}, {"a": None, "b": None}]
    assert decoded(PAIR, [composite((23, SEVEN)), composite()], "b") == [{"a": 7, "b": None}, {"a": None, "b": None}]
    grown = composite((23, SEVEN), (25, b"x"), (23, None))
    for form, cell in (("t", b"(1,x,)"), ("b", grown), ("b", composite((20, b"12345678")))):
        for policy in ("error", "null"):
            with pytest.raises(SchemaChangeError, match="other attributes") as raised:
                decoded(
                    PAIR, [GOOD_TEXT[PAIR] if form == "t" else GOOD_BINARY[PAIR], cell], form, unrepresentable=policy
                )
            assert (raised.value.column, raised.value.lsn) == ("c", 101)


def test_what_has_no_place_within_is_null_within_by_policy() -> None:
    cell = b'["2024-01-01 00:00:00+00",infinity)'
    with pytest.raises(UnrepresentableError) as raised:
        decoded(TSTZRANGE, [b"empty", cell])
    assert raised.value.lsn == 101
    found = decoded(TSTZRANGE, [b"empty", cell], unrepresentable="null")[1]
    assert (found["upper"], found["lower_inc"], found["empty"]) == (None, True, False)


def test_money_has_the_scale_of_its_database() -> None:
    yen = TypeRules(EDITION, money_scale=0)
    assert [str(amount) for amount in decoded(MONEY, ["¥1,234".encode(), "-¥5".encode(), b"(7)"], rules=yen)] == [
        "1234", "-5", "-7"]  # fmt: skip


def test_types_within_types_have_an_end() -> None:
    deep = tuple(UserType(30_000 + n, "composite", f"c{n}", (Part("x", 30_001 + n, -1),)) for n in range(2000))
    found = TypeRules(EDITION, user_types=deep).column("c", 30_000, -1, None)
    assert found.arrow.num_fields == 1
    wide = tuple(
        UserType(30_000 + n, "composite", f"c{n}", tuple(Part(f"x{i}", 30_001 + n, -1) for i in range(100)))
        for n in range(50)
    )
    assert TypeRules(EDITION, user_types=wide).column("c", 30_000, -1, None).leaves <= 1000
    own = UserType(30_000, "array", "a", (Part("", 30_000, -1),))
    assert TypeRules(EDITION, user_types=(own,)).column("c", 30_000, -1, None).leaves == 1
    assert column_type(30_000).arrow == pa.string()
