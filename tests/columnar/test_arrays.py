"""Arrays of any shape, in either form, and what no list can say; hostile ones end in the documented error."""

from __future__ import annotations

import struct
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.columnar.stream import batch
from wal2lake.columnar.buffer import PgoutputDecodeError
from wal2lake.columnar.cells import ShapeError
from wal2lake.columnar.changes import decode_changes
from wal2lake.columnar.type_table import EDITION
from wal2lake.columnar.types import TableSchema, TypeRules, column_type, spark_ddl
from wal2lake.errors import UnrepresentableError
from wal2lake.pgoutput.codec import write_message
from wal2lake.pgoutput.messages import Insert
from wal2lake.pgoutput.tuples import NULL, TupleColumn, TupleData

INT4S, TEXTS, DATES = 1007, 1009, 1182


def decoded(oid: int, cells: list[bytes | None], form: Any = "t", dimensions: int = 1, **options: Any) -> list[Any]:
    """The cells behind another column of a length that differs from row to row."""
    rules = TypeRules(EDITION, (("c", dimensions),))
    columns = [("a", 25, -1, None, False), ("c", oid, -1, None, False)]
    schema = TableSchema.build(7, "s", "t", columns, rules=rules)
    values = [NULL if cell is None else TupleColumn(form, cell) for cell in cells]
    rows = [TupleData((TupleColumn("t", b"x" * (n % 3)), value)) for n, value in enumerate(values)]
    made = batch([(100 + n, 1, write_message(Insert(7, row))) for n, row in enumerate(rows)])
    found = decode_changes(made, schema, **options).new[1]
    found.validate(full=True)
    values_found: list[Any] = found.to_pylist()
    return values_found


def sent(elements: list[bytes | None], oid: int = 23, sizes: tuple[int, ...] | None = None, first: int = 1) -> bytes:
    """As array_send writes it."""
    sizes = ((len(elements),) if elements else ()) if sizes is None else sizes
    head = struct.pack(">iiI", len(sizes), None in elements, oid)
    head += b"".join(struct.pack(">ii", n, first) for n in sizes)
    return head + b"".join(b"\xff\xff\xff\xff" if e is None else struct.pack(">i", len(e)) + e for e in elements)


def printed(elements: list[str | None]) -> bytes:
    """As array_out may write it: everything in quotes."""
    escaped = ("NULL" if e is None else '"' + e.replace("\\", "\\\\").replace('"', '\\"') + '"' for e in elements)
    return ("{" + ",".join(escaped) + "}").encode()


element = st.one_of(st.none(), st.text(st.sampled_from('a\\"{},ü NUL'), max_size=5))


@settings(max_examples=60)
@given(st.lists(st.one_of(st.none(), st.lists(element, max_size=6)), max_size=9))
def test_whatever_stands_in_an_array_is_found_again(arrays: list[Any]) -> None:
    assert decoded(TEXTS, [None if a is None else printed(a) for a in arrays]) == arrays
    binary = [None if a is None else sent([e if e is None else e.encode() for e in a], 25) for a in arrays]
    assert decoded(TEXTS, binary, "b") == arrays


def test_arrays_of_several_dimensions() -> None:
    texts = [b"{{1,2},{3,NULL},{5,6}}", None, b"{}", b"{{7}}"]
    assert decoded(INT4S, texts, dimensions=2) == [[[1, 2], [3, None], [5, 6]], None, [], [[7]]]
    numbers = [struct.pack(">i", n) for n in range(1, 13)]
    binary = [sent([*numbers[:5], None], sizes=(3, 2)), None, sent([]), sent(numbers[6:7], sizes=(1, 1))]
    assert decoded(INT4S, binary, "b", 2) == [[[1, 2], [3, 4], [5, None]], None, [], [[7]]]
    assert decoded(INT4S, [sent(numbers, sizes=(2, 3, 2))], "b", 3) == [
        [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    ]
    assert decoded(TEXTS, [b'{{{"a}",b}},{{c,d}}}'], dimensions=3) == [[[["a}", "b"]], [["c", "d"]]]]
    assert column_type(INT4S, -1, None, EDITION, 2).arrow == pa.list_(pa.list_(pa.int32()))
    assert spark_ddl(pa.list_(pa.list_(pa.int32()))) == "ARRAY<ARRAY<INT>>"


@pytest.mark.parametrize("policy", ["error", "null"])
@pytest.mark.parametrize(
    ("form", "dimensions", "odd"),
    [
        ("t", 1, b"{{1,2},{3,4}}"), ("t", 1, b"[0:1]={1,2}"), ("t", 2, b"{1}"), ("t", 2, b"{{{1}}}"),
        ("b", 1, sent([b"\0\0\0\1"], sizes=(1, 1))), ("b", 1, sent([b"\0\0\0\1"], first=0)),
        ("b", 2, sent([b"\0\0\0\1"])), ("b", 1, sent([b"\0\0\0\1"], first=-5)),
    ],
)  # fmt: skip
def test_what_no_list_can_say_is_a_fault_whatever_the_policy(
    form: Any, dimensions: int, odd: bytes, policy: Any
) -> None:
    good = b"{}" if form == "t" else sent([])
    with pytest.raises(ShapeError, match=r"dimensions.* has no place in the lake type list") as raised:
        decoded(INT4S, [good, None, odd], form, dimensions, unrepresentable=policy)
    assert (raised.value.relation, raised.value.column, raised.value.lsn) == ("s.t", "c", 102)
    assert "wal2lake resync" in str(raised.value.hint)


def test_an_element_without_a_place_is_a_fault_or_null() -> None:
    cells = [b"{}", b"{2024-02-29}", None, b"{2024-02-29,infinity}"]
    with pytest.raises(UnrepresentableError) as raised:
        decoded(DATES, cells)
    assert (raised.value.column, raised.value.lsn) == ("c", 103)
    lenient = decoded(DATES, cells, unrepresentable="null")
    assert [array and len(array) for array in lenient] == [[], 1, None, 2]
    assert lenient[3][1] is None
    days = [sent([struct.pack(">i", day)], 1082) for day in (0, 2**31 - 1)]
    with pytest.raises(UnrepresentableError) as raised:
        decoded(DATES, days, "b")
    assert raised.value.lsn == 101
    assert decoded(DATES, days, "b", unrepresentable="null")[1] == [None]


@pytest.mark.parametrize(
    "bad",
    [b"", b"{", b"}", b"1", b"{1", b"1}", b"{1,}", b"{,1}", b"{,}", b"{1,,2}", b"{1}}", b"{}{}", b"}{", b"{1},{2}",
     b'{"1}', b'{"1"2}', b'{1"2"}', b'{"}', b'{"1""2"}', b"{x}", b"{ 1}", b"{null}", b'{"NULL"}', b"{\\1}"],
)  # fmt: skip
def test_text_that_is_no_array(bad: bytes) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded(INT4S, [b"{1,2}", bad, b"{}", b"{3}"])
    assert (raised.value.column, raised.value.lsn) == ("c", 101)


@pytest.mark.parametrize("bad", [b"{1{2}}", b"{{1}2}", b"{{1},}", b"{{},{}}", b"{{1}{2}}", b"{{1}"])
def test_text_that_is_no_array_of_two_dimensions(bad: bytes) -> None:
    with pytest.raises(PgoutputDecodeError) as raised:
        decoded(INT4S, [b"{{1}}", bad, b"{}"], dimensions=2)
    assert raised.value.lsn == 101


ONE = b"\0\0\0\1"


@pytest.mark.parametrize(
    "bad",
    [b"", sent([ONE])[:-1], sent([ONE]) + b"\0", sent([ONE], oid=25), sent([ONE, ONE], sizes=(1,)),
     sent([ONE], sizes=(2,)), sent([ONE], sizes=(0,)), sent([b"\0\1"]), sent([]) + ONE, sent([ONE], sizes=(2**30,)),
     struct.pack(">iiI", 7, 0, 23) + bytes(56), struct.pack(">iiI", 1, 2, 23) + bytes(16), sent([ONE])[:19],
     sent([None, ONE])[:-5], sent([ONE])[:20] + b"\x7f\xff\xff\xff" + ONE],
)  # fmt: skip
def test_bytes_that_are_no_array(bad: bytes) -> None:
    for others in ([sent([ONE])], [sent([None, ONE, ONE])] * 9):
        with pytest.raises(PgoutputDecodeError) as raised:
            decoded(INT4S, [*others, bad, *others], "b")
        assert (raised.value.column, raised.value.lsn) == ("c", 100 + len(others))


def test_hostile_sizes_take_no_more_than_their_bytes() -> None:
    bomb = struct.pack(">iiI", 6, 0, 23) + struct.pack(">ii", 2**31 - 1, 1) * 6
    with pytest.raises(PgoutputDecodeError):
        decoded(INT4S, [bomb], "b", 6)


def test_one_long_array_among_short_ones() -> None:
    """Walked alone once the others have ended: as many rounds as the longest has elements would take seconds."""
    words: list[bytes | None] = [b"w" * (n % 4) for n in range(200_000)]
    began = time.process_time()
    found = decoded(TEXTS, [sent([b"a", None], 25), sent(words, 25), sent([], 25)] * 2, "b")
    assert [len(array) for array in found] == [2, 200_000, 0] * 2
    assert found[1][-3:] == ["w", "ww", "www"]
    assert time.process_time() - began < 30
